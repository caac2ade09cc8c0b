"""The weights of ONNX graphs as heedful rounds them. Tables that are looked up are rounded as a whole."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor, nn

from ..loaded import Loaded
from ..packages import needed, quiet
from ..rounding import int8_channels, uint8_table
from .exact import STORED


def rounded(loaded: Loaded, folder: Path, kind: str) -> dict[str, Tensor]:
    """{parameter: its value as it is stored}: tables by their names in the graphs, and linear layers."""
    if kind == "float32":
        return {}
    looked_up = tables(folder)
    found: dict[str, Tensor] = {}
    for name, weight in loaded.model.named_parameters():
        module = loaded.model.get_submodule(name.rpartition(".")[0])
        if any(table.endswith((f".{name}", f".{tail(name)}")) for table in looked_up):
            found[name] = uint8_table(weight)
        elif type(module) is nn.Linear and weight.ndim == 2:
            found[name] = int8_channels(weight)
    return found


def tail(name: str) -> str:
    """A parameter's name without the side that it belongs to: a shared table has two."""
    return name.removeprefix("encoder.").removeprefix("decoder.")


def tables(folder: Path) -> set[str]:
    """The names of the parameters that the graphs look rows up in."""
    with quiet():
        onnx = needed("onnx", "onnx")
        graphs = [onnx.load(path, load_external_data=False).graph for path in sorted(folder.glob("*.onnx"))]
    whole = onnx.TensorProto.UINT8  # a matrix is int8
    weights = {each.name for graph in graphs for each in graph.initializer if each.data_type == whole}
    return {
        name.removesuffix(STORED) for name in weights if name.startswith("module.") and name.endswith(STORED)
    }
