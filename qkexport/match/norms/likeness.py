"""What looks like a normalization without being one of the forms that are proven.

    x / f(reduce(x)),   x * f(reduce(x))

It is reported, so that nobody takes silence for the absence of a norm.
"""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from qkexport.match.facts import is_op
from qkexport.match.norms.norm import uncast

_REDUCTIONS: Final = (
    "ReduceMean",
    "ReduceSum",
    "ReduceL2",
    "ReduceL1",
    "ReduceSumSquare",
    "ReduceMax",
)
_BETWEEN: Final = (
    "Abs", "Add", "Cast", "Clip", "Div", "Expand", "Max", "Mul", "Pow", "Reciprocal", "Reshape",
    "Sqrt", "Sub", "Unsqueeze",
)  # fmt: skip
_MAX_DEPTH: Final = 8


def resembles_norm(node: ir.Node) -> bool:
    """Whether a node scales one operand by a reduction of it, or is a norm operator."""
    if is_op(node, "LpNormalization", "InstanceNormalization", "GroupNormalization"):
        return True
    if not is_op(node, "Mul", "Div") or None in node.inputs:
        return False
    left, right = (uncast(value) for value in node.inputs)
    pairs = [(left, right)] if node.op_type == "Div" else [(left, right), (right, left)]
    return any(_reduces(other, source, _MAX_DEPTH) for source, other in pairs)


def _reduces(value: ir.Value | None, source: ir.Value | None, depth: int) -> bool:
    node = None if value is None else value.producer()
    if node is None or source is None or depth == 0:
        return False
    if is_op(node, *_REDUCTIONS):
        return _derives(node.inputs[0], source, 3)
    inputs = node.inputs if is_op(node, *_BETWEEN) else ()
    return any(_reduces(item, source, depth - 1) for item in inputs)


def _derives(value: ir.Value | None, source: ir.Value, depth: int) -> bool:
    """Whether a value is made from the source by a square and the like."""
    value = uncast(value)
    if value is source:
        return True
    node = None if value is None else value.producer()
    if node is None or depth == 0 or not is_op(node, "Pow", "Mul", "Abs", "Sub"):
        return False
    return any(_derives(item, source, depth - 1) for item in node.inputs)
