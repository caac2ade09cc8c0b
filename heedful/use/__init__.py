"""Using a model: a folder turned into text, in one line.

`model.py` has `load` and everything a loaded model can do; `results.py` is what comes back. `wording.py` turns texts
into a folder's numbers and back, `writing.py` turns options into a search, `scoring.py` reads without writing.
Nothing here imports torch until a model is loaded.
"""

from .model import Model as Model
from .model import load as load
from .model import save as save
from .model import save_adapter as save_adapter
