"""Euclidean length one, as F.normalize exports.

x / max(||x||, eps)                  ReduceL2, Clip (or Max), Expand, Div
x * (c / max(||x||, eps))            Div, Mul: the number c is left over
"""

from __future__ import annotations

import onnx_ir as ir

from qkexport.match.facts import Facts, data_input, integer, number, producer
from qkexport.match.norms.norm import Norm, inverse_of, is_same, normalized_axes, uncast, unexpanded
from qkexport.match.norms.rms import square_mean
from qkexport.match.shapes import node_axes
from qkexport.spec import QkNorm


def l2_norm(facts: Facts, value: ir.Value) -> Norm | None:
    """Matches the final `Div` or `Mul`."""
    node = producer(value, "Div", "Mul")
    if node is None or None in node.inputs:
        return None
    left, right = (item for item in node.inputs if item is not None)
    if node.op_type == "Div":
        return _divided(facts, value, left, right, 1.0)
    for source, inverse in ((left, right), (right, left)):
        found = inverse_of(facts, inverse)
        if found is not None:
            return _divided(facts, value, source, *found)
    return None


def _divided(
    facts: Facts, value: ir.Value, source: ir.Value, length: ir.Value, factor: float
) -> Norm | None:
    floor = _floored(facts, length)
    if floor is None or not facts.same_sizes(source, value):
        return None
    norm, epsilon = floor
    found = _length(facts, norm)
    if found is None or not is_same(source, found[0]):
        return None
    return Norm(QkNorm.L2, source, found[1], epsilon, factor)


def _floored(facts: Facts, value: ir.Value) -> tuple[ir.Value, float] | None:
    """The (y, eps) of max(y, eps)."""
    node = producer(unexpanded(value), "Clip", "Max")
    if node is None or node.inputs[0] is None:
        return None
    if node.op_type == "Clip":
        if data_input(node, 2) is not None or "max" in node.attributes:
            return None
        bound = data_input(node, 1)
        low = facts.constants.scalar(bound) if bound is not None else number(node, "min", -1.0)
        return None if low is None or low < 0 else (node.inputs[0], low)
    if len(node.inputs) != 2:
        return None
    for norm, bound in (node.inputs, node.inputs[::-1]):
        low = facts.constants.scalar(bound)
        if low is not None and low >= 0 and norm is not None:
            return norm, low
    return None


def _length(facts: Facts, value: ir.Value) -> tuple[ir.Value, tuple[int, ...]] | None:
    """The (x, axes) of ||x||."""
    node = producer(uncast(value), "ReduceL2", "Sqrt")
    if node is None or node.inputs[0] is None:
        return None
    source = node.inputs[0]
    if node.op_type == "Sqrt":
        found = square_mean(facts, source)
        summed = producer(uncast(source), "ReduceSum", "ReduceSumSquare")
        return None if found is None or summed is None else (found.source, found.axes)
    axes = node_axes(facts.constants, node)
    if not axes or not integer(node, "keepdims", 1):
        return None
    places = normalized_axes(facts, source, axes)
    return None if places is None else (source, places)
