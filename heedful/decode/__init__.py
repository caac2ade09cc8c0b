"""Decoding: from scores to words."""
