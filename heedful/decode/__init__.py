"""Decoding: from scores to words.

`step.py` is the one thing a search knows of a model; `stream.py` writes token by token, and `greedy.py` and
`sampling.py` say how each is chosen; `beam.py` keeps several hypotheses; `speculative.py` lets a small model
guess ahead; `filters.py` says what may be chosen at all. Every one of them works on batches of unequal prompts.
"""
