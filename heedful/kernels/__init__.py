"""Kernels for the decoding step on a GPU, where a model of a few million numbers is all launches and no work.

Each does at once what the parts do one after the other, for a few rows of one token each, and is proven equal to
them. They are written in Triton, which comes with torch for CUDA; nothing imports this package where it is missing.
"""
