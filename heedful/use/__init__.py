"""Using a model: a folder turned into text, in one line.

`model.py` has `load` and the model, and each ability has a file: `translate.py`, `generate.py`,
`classify.py` and so on. `results.py` is what comes back. `wording.py` turns texts into a folder's tokens and
back, `options.py` has the options of decoding, and `search.py` turns them into a search."""
