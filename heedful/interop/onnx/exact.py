"""A quantized graph made exact: the same stored weights, multiplied in float32.

onnxruntime's dynamic quantization rounds what is multiplied with a matrix, too, anew for each input. Without
that rounding, the graph computes what its stored weights say, and every one of them can be held against ours.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..packages import needed, quiet

PRODUCT, ROUNDING = "MatMulInteger", "DynamicQuantizeLinear"
STORED, SCALE, ZERO = "_quantized", "_scale", "_zero_point"  # how onnxruntime names what it stores


def exact_graph(path: Path) -> bytes | None:
    """The graph with its integer products replaced by products in float32; None if it has none."""
    with quiet():
        onnx = needed("onnx", "onnx")
        model = onnx.load(path)
    nodes = list(model.graph.node)
    if not any(node.op_type == PRODUCT for node in nodes):
        return None
    replaced = [each for node in nodes for each in in_float32(onnx, node, nodes)]
    del model.graph.node[:]
    model.graph.node.extend(replaced)
    return model.SerializeToString()


def in_float32(onnx: Any, node: Any, nodes: list[Any]) -> list[Any]:
    """What stands in the place of a node: itself, unless it is a product or belongs to one."""
    if node.op_type != PRODUCT:
        return [] if follows_product(node, nodes) else [node]
    rounded, stored = node.input[0], node.input[1]
    given = next(each.input[0] for each in nodes if rounded in each.output and each.op_type == ROUNDING)
    scaled = scaled_output(node, nodes)
    weight = f"{stored}_in_float32_{scaled}"
    name = stored.removesuffix(STORED)
    dequantize = onnx.helper.make_node(
        "DequantizeLinear", [stored, name + SCALE, name + ZERO], [weight], axis=1
    )
    return [dequantize, onnx.helper.make_node("MatMul", [given, weight], [scaled])]


def follows_product(node: Any, nodes: list[Any]) -> bool:
    """Whether a node turns the whole numbers of a product into its result."""
    products = [each for each in nodes if each.op_type == PRODUCT]
    ends = {output for each in products for output in (cast_output(each, nodes), scaled_output(each, nodes))}
    return node.output[0] in ends


def cast_output(product: Any, nodes: list[Any]) -> str:
    return next(each.output[0] for each in nodes if product.output[0] in each.input)


def scaled_output(product: Any, nodes: list[Any]) -> str:
    """The result of a product: its whole numbers as float32, times both scales."""
    cast = cast_output(product, nodes)
    return next(each.output[0] for each in nodes if cast in each.input and each.op_type == "Mul")
