"""Root mean square, written out.

x * (1 / sqrt(mean(x^2) + eps))      Pow, ReduceMean, Add, Sqrt, Reciprocal, Mul
x * (mean(x^2) + eps)^-0.5           Pow with exponent -0.5
x / sqrt(mean(x^2) + eps)            Div
x * rsqrt(sum(x^2) + eps)            L2 with the epsilon under the root: eps / N, 1 / sqrt(N)
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import onnx_ir as ir

from qkexport.match.facts import Facts, integer, producer
from qkexport.match.norms.norm import (
    Norm,
    inverse_of,
    is_same,
    normalized_axes,
    uncast,
    unexpanded,
)
from qkexport.match.shapes import node_axes
from qkexport.match.sizes import product
from qkexport.spec import QkNorm


@dataclasses.dataclass(frozen=True)
class SquareMean:
    """mean(source^2) or, with `count` elements, their sum."""

    source: ir.Value
    axes: tuple[int, ...]
    count: int = 1


def rms_norm(facts: Facts, value: ir.Value) -> Norm | None:
    """Matches the final `Mul` or `Div`."""
    for source, root, factor in _products(facts, value):
        found = _mean_and_epsilon(facts, root)
        if found is None or not is_same(source, found[0].source):
            continue
        if not facts.same_sizes(source, value):
            continue
        mean, epsilon = found
        factor = factor / math.sqrt(mean.count)
        return Norm(QkNorm.RMS, source, mean.axes, epsilon / mean.count, factor)
    return None


def _products(facts: Facts, value: ir.Value) -> Iterator[tuple[ir.Value, ir.Value, float]]:
    """Triples (x, y, c) such that the value is c * x / sqrt(y)."""
    node = producer(value, "Mul", "Div")
    if node is None or None in node.inputs:
        return
    left, right = (item for item in node.inputs if item is not None)
    if node.op_type == "Div":
        root = producer(unexpanded(right), "Sqrt")
        if root is not None and root.inputs[0] is not None:
            yield left, root.inputs[0], 1.0
        return
    for source, other in ((left, right), (right, left)):
        found = _reciprocal_root(facts, other)
        if found is not None:
            yield source, *found


def _reciprocal_root(facts: Facts, value: ir.Value) -> tuple[ir.Value, float] | None:
    """The (y, c) of c / sqrt(y), in its spellings."""
    power = producer(unexpanded(value), "Pow")
    if power is not None and power.inputs[0] is not None:
        exponent = facts.constants.scalar(power.inputs[1])
        return (power.inputs[0], 1.0) if exponent == -0.5 else None
    root = producer(unexpanded(value), "Sqrt")
    if root is not None and root.inputs[0] is not None:
        return inverse_of(facts, root.inputs[0]) if _is_plain_inverse(root.inputs[0]) else None
    found = inverse_of(facts, value)
    root = None if found is None else producer(uncast(found[0]), "Sqrt")
    if found is None or root is None or root.inputs[0] is None:
        return None
    return root.inputs[0], found[1]


def _is_plain_inverse(value: ir.Value) -> bool:
    return producer(uncast(value), "Reciprocal") is not None


def _mean_and_epsilon(facts: Facts, value: ir.Value) -> tuple[SquareMean, float] | None:
    node = producer(uncast(value), "Add")
    if node is None:
        mean = square_mean(facts, value)
        return None if mean is None else (mean, 0.0)
    for mean_value, epsilon_value in (node.inputs, node.inputs[::-1]):
        epsilon = facts.constants.scalar(epsilon_value)
        mean = None if mean_value is None else square_mean(facts, mean_value)
        if epsilon is not None and epsilon >= 0 and mean is not None:
            return mean, epsilon
    return None


def square_mean(facts: Facts, value: ir.Value) -> SquareMean | None:
    """Matches the reduction; it must keep its axes."""
    node = producer(uncast(value), "ReduceMean", "ReduceSum", "ReduceSumSquare")
    if node is None or node.inputs[0] is None or not integer(node, "keepdims", 1):
        return None
    source = node.inputs[0]
    if node.op_type != "ReduceSumSquare":
        squared = _square_root(facts, source)
        if squared is None:
            return None
        source = squared
    axes = node_axes(facts.constants, node)
    places = None if not axes else normalized_axes(facts, source, axes)
    sizes = facts.sizes(source)
    if places is None or sizes is None:
        return None
    if node.op_type == "ReduceMean":
        return SquareMean(source, places)
    count = product(sizes[i] for i in places).known
    return None if count is None else SquareMean(source, places, count)


def _square_root(facts: Facts, value: ir.Value) -> ir.Value | None:
    """The x of x^2."""
    node = producer(uncast(value), "Pow", "Mul")
    if node is None or node.inputs[0] is None:
        return None
    if node.op_type == "Pow":
        return node.inputs[0] if facts.constants.scalar(node.inputs[1]) == 2.0 else None
    return node.inputs[0] if is_same(node.inputs[0], node.inputs[1]) else None
