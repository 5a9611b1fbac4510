"""One normalization found in a graph, and how two spellings of one thing are compared."""

from __future__ import annotations

import dataclasses
from typing import Final

import onnx_ir as ir

from qkexport.match.facts import FLOATS, Facts, integer, producer
from qkexport.spec import QkNorm

_FLOATING: Final = (*FLOATS, ir.DataType.DOUBLE)


@dataclasses.dataclass(frozen=True)
class PerHead:
    """A parameter that is one tensor a head.

    Attributes:
        values: The tensors, in the order of the heads.
        axis: The axis of the heads.
        num_heads: How many there must be.
    """

    values: tuple[ir.Value, ...]
    axis: int
    num_heads: int


@dataclasses.dataclass(frozen=True)
class Norm:
    """`result = factor * normalized(source)`, then weight and bias where the operator has them.

    Attributes:
        kind: Formula, as in the operator's contract.
        source: What is normalized; has the shape of the result.
        axes: Axes it is normalized over, non-negative, ascending.
        epsilon: As the contract of `kind` uses it.
        factor: A number the formula leaves over, such as 1 / sqrt(N).
        weight: Gain inside the operator, broadcast from the last axis.
        bias: Likewise.
        rounds_before_weight: The operator rounds to the tensor type before its own gain.
    """

    kind: QkNorm
    source: ir.Value
    axes: tuple[int, ...]
    epsilon: float
    factor: float = 1.0
    weight: ir.Value | PerHead | None = None
    bias: ir.Value | PerHead | None = None
    rounds_before_weight: bool = False


def uncast(value: ir.Value | None) -> ir.Value | None:
    """The value before casts to floating types; casts to integers cut digits off and stay."""
    while (node := producer(value, "Cast", "Identity")) is not None:
        if node.op_type == "Cast" and integer(node, "to", 0) not in _FLOATING:
            break
        value = node.inputs[0]
    return value


def unexpanded(value: ir.Value | None) -> ir.Value | None:
    """The value before casts and before it was spread over the axis it was reduced over."""
    while (node := producer(value := uncast(value), "Expand")) is not None:
        value = node.inputs[0]
    return value


def is_same(left: ir.Value | None, right: ir.Value | None, depth: int = 3) -> bool:
    """Whether two values are one, up to casts and operators written twice."""
    left, right = uncast(left), uncast(right)
    if left is right:
        return True
    if left is None or right is None or depth == 0:
        return False
    a, b = left.producer(), right.producer()
    if a is None or b is None or a.op_identifier() != b.op_identifier():
        return False
    if len(a.inputs) != len(b.inputs) or len(a.outputs) != 1 or len(b.outputs) != 1:
        return False
    if {k: v.value for k, v in a.attributes.items()} != {
        k: v.value for k, v in b.attributes.items()
    }:
        return False
    return all(is_same(x, y, depth - 1) for x, y in zip(a.inputs, b.inputs, strict=True))


def normalized_axes(facts: Facts, value: ir.Value, axes: tuple[int, ...]) -> tuple[int, ...] | None:
    """Axes counted from the front."""
    rank = facts.shapes.rank(value)
    return None if rank is None else tuple(sorted(axis % rank for axis in axes))


def inverse_of(facts: Facts, value: ir.Value) -> tuple[ir.Value, float] | None:
    """The (y, c) of c / y."""
    node = producer(unexpanded(value), "Div", "Reciprocal", "Mul")
    if node is None or None in node.inputs:
        return None
    if node.op_type == "Mul":
        for inverse, other in (node.inputs, node.inputs[::-1]):
            factor = facts.constants.scalar(other)
            found = None if factor is None or inverse is None else inverse_of(facts, inverse)
            if found is not None and factor is not None:
                return found[0], found[1] * factor
        return None
    factor = 1.0 if node.op_type == "Reciprocal" else facts.constants.scalar(node.inputs[0])
    divisor = node.inputs[-1]
    return None if factor is None or divisor is None else (divisor, factor)
