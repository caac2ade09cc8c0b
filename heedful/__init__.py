"""heedful: the Transformer as the lectures teach it.

Tensor names carry their axes (Shazeer's suffixes): `scores_BHTS = q_BHTK @ k_BHSK.mT` needs no comment.

    B batch          T queries (target)     S keys (source)      D model width
    H query heads    G key/value heads      K head width         L value width (K unless said)
    F feed-forward   V vocabulary           E experts            W beams
    N patches        C channels             R edges (relative)   1 broadcasts

Names are imported when first used, so that `import heedful` is instant and needs no torch.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .errors import BadInput as BadInput
    from .interop.loaded import Loaded as Loaded
    from .models.base.shells import Decoder as Decoder
    from .models.base.shells import Encoder as Encoder
    from .models.base.shells import EncoderDecoder as EncoderDecoder
    from .parts.watch import watch as watch
    from .use.load import load as load
    from .use.load import save as save
    from .use.load import save_adapter as save_adapter
    from .use.model import Model as Model

_HOME = {
    "BadInput": "errors",
    "Loaded": "interop.loaded",
    "Model": "use.model",
    "load": "use.load",
    "save": "use.load",
    "save_adapter": "use.load",
    "Encoder": "models.base.shells",
    "Decoder": "models.base.shells",
    "EncoderDecoder": "models.base.shells",
    "watch": "parts.watch",
}

__all__ = list(_HOME)

# Idle OpenMP threads of torch spin for 3 ms. Where several programs share the cores, each spins away the
# other's time: training was 14 times slower on a busy machine (benchmarks/together.py). To sleep at once
# costs time where nobody else computes: a text is written half as fast, since a thread takes long to wake. To
# spin for 10 us loses little either way. OpenMP reads this once, when torch is imported.
WAITING = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"}
if "torch" not in sys.modules and not WAITING & {*os.environ}:
    os.environ["GOMP_SPINCOUNT"] = "1000"


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'heedful' has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])
