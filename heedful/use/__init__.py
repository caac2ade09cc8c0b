"""Using a model: a folder turned into text, in one line.

`model.py` has `load` and the model, and each ability has a file: `translate.py`, `generate.py`,
`classify.py` and so on. `results.py` is what comes back. `wording.py` turns texts into a folder's tokens and
back, and `search.py` turns the options of `decode/options.py` into a search."""
