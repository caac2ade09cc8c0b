"""A graph of ONNX: what a module computes, recorded by torch.export."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..packages import needed, quiet

OPSET = 18
LARGEST = 2_000_000_000  # bytes: a file of more than 2 GiB is no ONNX file, and its weights go beside it


class Graph:
    """A module to record: example inputs by name, each with the names of its axes that may have any size."""

    def __init__(
        self,
        module: nn.Module,
        inputs: dict[str, tuple[Tensor, dict[int, str]]],
        outputs: dict[str, dict[int, str]],
    ) -> None:
        self.module, self.inputs, self.outputs = module.eval(), inputs, outputs

    def write(self, path: Path) -> None:
        """As an ONNX file."""
        given = tuple(tensor for tensor, _ in self.inputs.values())
        with quiet(), torch.no_grad():
            program = torch.onnx.export(
                ListInputs(self.module),
                (list(given),),
                dynamo=True,
                opset_version=OPSET,
                input_names=list(self.inputs),
                output_names=list(self.outputs),
                dynamic_shapes=(
                    [dict.fromkeys(axes, torch.export.Dim.DYNAMIC) for _, axes in self.inputs.values()],
                ),
                verbose=False,
                optimize=False,
            )
            assert program is not None
            simplify(program.model)
            forget(program.model)
            self.name_axes(program.model)
            size = sum(weight.numel() * weight.element_size() for weight in self.module.parameters())
            program.save(path, external_data=size > LARGEST)

    def name_axes(self, model: Any) -> None:
        """Name the axes: which are the batch, and which a length."""
        named = {name: axes for name, (_, axes) in self.inputs.items()} | self.outputs
        for value in (*model.graph.inputs, *model.graph.outputs):
            for axis, name in named[value.name].items():
                value.shape[axis] = name


def simplify(model: Any) -> None:
    """Fold constants, but do not copy a weight that is used in two ways, such as the one of a tied head."""
    optimizer = needed("onnxscript.optimizer", "onnx")

    def should_fold(node: Any) -> bool | None:
        shared = node.op_type == "Transpose" and len(node.inputs[0].uses()) > 1
        return False if shared else None

    optimizer.optimize_ir(model, should_fold=should_fold)


def forget(model: Any) -> None:
    """Remove what torch notes of each node: the lines of code it came from, with the names of folders."""
    values = [value for node in model.graph for value in node.outputs]
    for noted in (
        *model.graph,
        *values,
        *model.graph.inputs,
        *model.graph.initializers.values(),
        model.graph,
        model,
    ):
        noted.metadata_props.clear()


class ListInputs(nn.Module):
    """A module given its inputs in one list: torch.export then takes them in that order."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, given: list[Tensor]) -> tuple[Tensor, ...]:
        return self.module(*given)
