"""The fields that the configs of many architectures have: type, range and one line of help. No torch here."""

from __future__ import annotations

import ast
import sys
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, Literal

from .settings import GIVEN, Choices, Range, derived

LARGEST = 2**31 - 1
SIZE = Range(1, LARGEST)
AMOUNT = Range(0, sys.float_info.max)  # any number that is not negative
RATE = Range(0, 1, "[)")
PARTS = Path(__file__).parents[2] / "parts"


@cache
def keys_of(file: str, table: str, missing: tuple[str, ...] | None = None) -> tuple[str, ...]:
    """The keys of a table in a file of `parts`, which is parsed and not imported: it imports torch."""
    for node in ast.parse((PARTS / file).read_text()).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Dict):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if ast.unparse(target) == table:
                return tuple(str(key.value) for key in node.value.keys if isinstance(key, ast.Constant))
    if missing is None:
        raise LookupError(f"{file} has no table {table}")
    return missing


def choices(file: str, table: str) -> Choices:
    return Choices(partial(keys_of, file, table))


def one_of(*names: str) -> Choices:
    return Choices(lambda: names)


def position_names() -> tuple[str, ...]:
    """The position schemes that a model can be built with: those of every file, and those that are two."""
    found = ["none"]
    for path in sorted((PARTS / "positions").glob("*.py")):
        found += keys_of(f"positions/{path.name}", "SCHEMES", missing=())
    return (*found, *keys_of("positions/__init__.py", "COMBINED"))


def plain_position_names() -> tuple[str, ...]:
    """Those that need no dependency tree."""
    return tuple(name for name in position_names() if not name.startswith("structural"))


def ratio(factor: int, name: str) -> Any:
    """A default that is so many times another field."""
    return derived(f"{factor} x {name}", lambda made: factor * getattr(made, name))


def divided(whole: str, parts: str) -> Any:
    """A default that is one of so many equal parts of another field."""
    return derived(f"{whole} / {parts}", lambda made: max(1, getattr(made, whole) // getattr(made, parts)))


# What the data decide.
Vocab = Annotated[int, SIZE, "size of the vocabulary", GIVEN]
TargetVocab = Annotated[int, SIZE, "size of the target vocabulary", GIVEN]
ShareEmbeddings = Annotated[bool, "one vocabulary and one embedding matrix for source and target", GIVEN]
Labels = Annotated[int, SIZE, "number of labels", GIVEN]
ImageSize = Annotated[int, SIZE, "pixels along a side of an image", GIVEN]
Channels = Annotated[int, SIZE, "color channels of an image", GIVEN]
TextLength = Annotated[int, SIZE, "tokens of the longest caption", GIVEN]
PredictionHeads = Annotated[tuple[str, ...], "what is read off the encoder, by name", GIVEN]

# Sizes.
Context = Annotated[int, SIZE, "longest sequence, in tokens"]
Layers = Annotated[int, SIZE, "number of layers"]
DecoderLayers = Annotated[int, SIZE, "number of decoder layers"]
Width = Annotated[int, SIZE, "model width (d_model)"]
Heads = Annotated[int, SIZE, "attention heads of a layer"]
DecoderHeads = Annotated[int, SIZE, "attention heads of a decoder layer"]
KeyValueHeads = Annotated[int, SIZE, "key/value heads of a layer; query heads share them evenly"]
KeyWidth = Annotated[int, SIZE, "width of the queries and keys of a head"]
RotaryWidth = Annotated[int, SIZE, "dimensions of a head that rotary positions turn"]
FfnWidth = Annotated[int, SIZE, "width of the feed-forward layer"]
DecoderFfnWidth = Annotated[int, SIZE, "width of the decoder's feed-forward layer"]
EmbeddingWidth = Annotated[int, SIZE, "width of the embeddings"]
KernelSize = Annotated[int, SIZE, "tokens that a convolution sees"]
PatchSize = Annotated[int, SIZE, "pixels along a side of a patch"]
Segments = Annotated[int, SIZE, "segment embeddings: texts that a row may hold"]
MaxDistance = Annotated[int, SIZE, "relative positions: greater distances count as this one"]
Buckets = Annotated[int, Range(2, LARGEST), "relative positions: number of distance buckets (T5)"]
Codes = Annotated[int, SIZE, "size of the codebook of image codes"]

# Rates and small numbers.
Dropout = Annotated[float, RATE, "dropout rate"]
AttentionDropout = Annotated[float, RATE, "dropout rate of attention weights"]
ActivationDropout = Annotated[float, RATE, "dropout rate inside the feed-forward layer"]
ClassifierDropout = Annotated[float, RATE, "dropout rate before the classifier"]
Eps = Annotated[float, AMOUNT, "added to the variance in a norm"]

# Choices.
Activation = Annotated[str, choices("layers.py", "ACTIVATIONS"), "activation of the feed-forward layer"]
Norm = Annotated[str, choices("layers.py", "RESIDUALS"), "norm before or after each sub-layer"]
Cell = Annotated[str, choices("before/recurrent.py", "CELLS"), "recurrent cell"]
RelationScope = Annotated[
    Literal["edge", "path"], "structural positions: related are words one edge apart, or all on one path"
]
SinusoidLayout = Annotated[
    str, one_of("interleaved", "halves"), "sinusoids: sin and cos alternate, or all sines come first"
]
SinusoidPrecision = Annotated[
    str, one_of("float32", "float16", "bfloat16"), "sinusoids: what the stored table was rounded to", GIVEN
]
ScaleEmbeddings = Annotated[bool, "multiply embeddings by the square root of their width"]
TieEmbeddings = Annotated[bool, "use the embedding matrix for the output, too"]
OutputBias = Annotated[bool, "a bias on the output scores"]

# Mixtures of experts.
Experts = Annotated[int, SIZE, "experts of a mixture layer"]
TopK = Annotated[int, SIZE, "experts that each token is sent to"]
MoeEvery = Annotated[int, SIZE, "one layer in this many is a mixture, counted from the last"]
Router = Annotated[str, choices("experts.py", "GATES"), "how tokens are routed, and by which balance losses"]
BalanceLossWeight = Annotated[float, AMOUNT, "weight of the losses for balanced experts"]
CapacityFactor = Annotated[
    float, AMOUNT, "in training, an expert takes at most this many times an even share; 0: no limit"
]
