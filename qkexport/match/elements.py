"""What integer and bool tensors hold, derived from the operators that make them.

Exporters compute masks at run time from position numbers that nobody gave: differences of
neighbours, running sums of "a new sequence begins here", comparisons with a past that is not there.
Where an element is a sum of its indices and of sizes, or a condition is the same everywhere, it is
known here. Everything that depends on data is unknown, and so is whatever has no rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import onnx_ir as ir

from qkexport.match import moved_elements as moved
from qkexport.match.affine import (
    Affine,
    Element,
    broadcast,
    is_at_least,
    number,
    of_array,
)
from qkexport.match.offsets import Offset
from qkexport.match.shapes import Shapes
from qkexport.match.sizes import ONE, Size

Sizes: TypeAlias = tuple[Size, ...]
_Operands: TypeAlias = list[Element | None]
_Rule: TypeAlias = Callable[[_Operands, Sizes], "Element | None"]

_INTEGERS: Final = (ir.DataType.INT64, ir.DataType.INT32)
_BOOL: Final = ir.DataType.BOOL
_FIRST_OPSET: Final = 11  # with CumSum; long after operands began to broadcast as they do now


class Elements:
    """Elements of all values of one graph, derived once, in graph order.

    Args:
        graph: Where the values live.
        shapes: Its shapes and constants.
    """

    def __init__(self, graph: ir.Graph, shapes: Shapes) -> None:
        self.shapes = shapes
        self._known: dict[ir.Value, Element | None] = {}
        if graph.opset_imports.get("", 1) < _FIRST_OPSET:
            return
        for node in graph:
            if node.op_type in _RULED and node.domain in ("", "ai.onnx"):
                self._known[node.outputs[0]] = self._derived(node)

    def of(self, value: ir.Value | None) -> Element | None:
        """Every element, or None where it is not known."""
        if value is None:
            return None
        if value not in self._known:
            array = self.shapes.constants().array(value)
            self._known[value] = None if array is None else of_array(array)
        return self._known[value]

    def scalar(self, value: ir.Value | None) -> Offset | None:
        """The only element of an integer tensor."""
        found = self.affine(value)
        return found[0].offset if found and all(size == ONE for size in found[1]) else None

    def affine(self, value: ir.Value | None) -> tuple[Affine, Sizes] | None:
        """Integer elements together with the sizes of their tensor."""
        element = self.of(value)
        sizes = None if value is None else self.shapes.sizes(value)
        if not isinstance(element, Affine) or sizes is None or len(sizes) != len(element.slopes):
            return None
        return element, sizes

    def spread(self, value: ir.Value | None, target: Sizes) -> Element | None:
        """The elements of a tensor that is broadcast to other sizes."""
        element = self.of(value)
        if isinstance(element, bool):
            return element
        found = self.affine(value)
        return None if found is None else broadcast(*found, target)

    def _derived(self, node: ir.Node) -> Element | None:
        value = node.outputs[0]
        sizes = self.shapes.sizes(value)
        if sizes is None or value.dtype not in (None, *_INTEGERS, _BOOL):
            return None
        array = self.shapes.constants().array(value)
        found = None if array is None else of_array(array)
        if found is None:
            found = self._computed(node, sizes)
        if isinstance(found, bool) or found is None:
            return found
        if len(found.slopes) != len(sizes) or not found.is_small:
            return None
        slopes = (0 if size == ONE else s for s, size in zip(found.slopes, sizes, strict=True))
        return Affine(found.offset, tuple(slopes))

    def _computed(self, node: ir.Node, sizes: Sizes) -> Element | None:
        found: Element | None = None
        if node.op_type == "Cast":
            return _cast(self.of(node.inputs[0]), node, sizes)
        if node.op_type in _ELEMENTWISE:
            operands = [self.spread(value, sizes) for value in node.inputs]
            found = _ELEMENTWISE[node.op_type](operands, sizes)
        elif node.op_type in moved.RULES:
            found = moved.RULES[node.op_type](self, node, sizes)
        return self._size(node.outputs[0], sizes) if found is None else found

    def _size(self, value: ir.Value, sizes: Sizes) -> Element | None:
        """One size of another tensor."""
        vector = self.shapes.vector(value)
        if vector is None or len(vector) != 1 or vector[0] is None or value.dtype == _BOOL:
            return None
        if any(size != ONE for size in sizes):
            return None
        return Affine(Offset.of(vector[0]), (0,) * len(sizes))


def _cast(element: Element | None, node: ir.Node, sizes: Sizes) -> Element | None:
    target = ir.DataType(node.attributes["to"].as_int())
    if element is None or target not in (*_INTEGERS, _BOOL):
        return None
    if target in _INTEGERS:
        return number(int(element), len(sizes)) if isinstance(element, bool) else element
    if isinstance(element, bool):
        return element
    equal = _equal([element, number(0, len(sizes))], sizes)
    return None if equal is None else not equal


def _sum(operands: _Operands, sizes: Sizes) -> Element | None:
    left, right = operands
    if not isinstance(left, Affine) or not isinstance(right, Affine):
        return None
    return left.plus(right)


def _difference(operands: _Operands, sizes: Sizes) -> Element | None:
    left, right = operands
    if not isinstance(left, Affine) or not isinstance(right, Affine):
        return None
    return left.plus(right, -1)


def _product(operands: _Operands, sizes: Sizes) -> Element | None:
    for left, right in (operands, operands[::-1]):
        if isinstance(left, Affine) and isinstance(right, Affine) and right.known is not None:
            return left.times(right.known)
    return None


def _negative(operands: _Operands, sizes: Sizes) -> Element | None:
    return operands[0].times(-1) if isinstance(operands[0], Affine) else None


def _equal(operands: _Operands, sizes: Sizes) -> bool | None:
    left, right = operands
    if isinstance(left, bool) and isinstance(right, bool):
        return left == right
    apart = _difference(operands, sizes)
    if not isinstance(apart, Affine):
        return None
    if apart.known == 0:
        return True
    differs = is_at_least(apart, 1, sizes) or is_at_least(apart.times(-1), 1, sizes)
    return False if differs else None


def _less(operands: _Operands, sizes: Sizes) -> bool | None:
    """Whether left < right."""
    apart = _difference(operands[::-1], sizes)
    if not isinstance(apart, Affine):
        return None
    if is_at_least(apart, 1, sizes):
        return True
    return False if is_at_least(apart.times(-1), 0, sizes) else None


def _greater(operands: _Operands, sizes: Sizes) -> bool | None:
    return _less(operands[::-1], sizes)


def _not(operands: _Operands, sizes: Sizes) -> bool | None:
    return not operands[0] if isinstance(operands[0], bool) else None


def _less_or_equal(operands: _Operands, sizes: Sizes) -> bool | None:
    return _not([_greater(operands, sizes)], sizes)


def _greater_or_equal(operands: _Operands, sizes: Sizes) -> bool | None:
    return _not([_less(operands, sizes)], sizes)


def _and(operands: _Operands, sizes: Sizes) -> bool | None:
    if any(operand is False for operand in operands):
        return False
    return True if all(operand is True for operand in operands) else None


def _or(operands: _Operands, sizes: Sizes) -> bool | None:
    if any(operand is True for operand in operands):
        return True
    return False if all(operand is False for operand in operands) else None


def _xor(operands: _Operands, sizes: Sizes) -> bool | None:
    return _not([_equal(operands, sizes)], sizes)


def _where(operands: _Operands, sizes: Sizes) -> Element | None:
    condition, chosen, other = operands
    if isinstance(condition, bool):
        return chosen if condition else other
    return chosen if chosen is not None and chosen == other else None


def _largest(operands: _Operands, sizes: Sizes) -> Element | None:
    return _extreme(operands, sizes, _greater_or_equal)


def _smallest(operands: _Operands, sizes: Sizes) -> Element | None:
    return _extreme(operands, sizes, _less_or_equal)


def _extreme(operands: _Operands, sizes: Sizes, beats: _Rule) -> Element | None:
    for operand in operands:
        if all(other is operand or beats([operand, other], sizes) is True for other in operands):
            return operand
    return None


_ELEMENTWISE: Final[dict[str, _Rule]] = {
    "Add": _sum,
    "Sub": _difference,
    "Mul": _product,
    "Neg": _negative,
    "Equal": _equal,
    "Less": _less,
    "Greater": _greater,
    "LessOrEqual": _less_or_equal,
    "GreaterOrEqual": _greater_or_equal,
    "Not": _not,
    "And": _and,
    "Or": _or,
    "Xor": _xor,
    "Where": _where,
    "Max": _largest,
    "Min": _smallest,
}
_RULED: Final = frozenset({*_ELEMENTWISE, *moved.RULES, "Cast", "Shape"})
