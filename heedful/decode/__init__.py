"""Decoding: from scores to words.

`step.py` is the one thing a search knows of a model. `streaming.py` writes token by token; `greedy.py` and
`sampling.py` choose each token. `beam.py` keeps several hypotheses; `speculative.py` lets a small model guess
ahead; `filters.py` says what may be chosen at all, `scores.py` finds the best of it. `options.py` lists every
option with its range and its filter. All of them work on batches of unequal prompts.
"""
