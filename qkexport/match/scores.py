"""From the softmax back to the product of query and key, through everything done to scores.

    masks        s + m;   where(keep, s, -inf);   where(drop, -1e9, s)
    softcap      c * tanh(s / c)
    scale        s * c;   s / c;   s * temperature [h, 1, 1]
    shift        s - max(s) over the row, which softmax does by itself
    windows      [b, h, i, j] -> [b / w, w, h, i, j] and back

Where two ways lead to a product (a relative bias may be one too) all of them are offered.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import onnx_ir as ir

from qkexport.match.core import Mask
from qkexport.match.factors import aligned_layout
from qkexport.match.facts import Facts, View, integer, is_op, producer
from qkexport.match.layout import COLUMN, ROW, Layout, are_whole, labels
from qkexport.match.moves import cast_back, step_back
from qkexport.match.norms.norm import is_same, uncast
from qkexport.match.products import Product, find_product
from qkexport.match.proof import NotProvenError, describe
from qkexport.match.shapes import node_axes


@dataclasses.dataclass(frozen=True)
class Scores:
    """softmax's argument as an expression of a product, its parts in the order they are met."""

    product: Product | None = None
    layout: Layout = ()
    scale: float = 1.0
    factors: tuple[View, ...] = ()
    masks: tuple[Mask, ...] = ()
    softcap: float = 0.0


def walk_scores(facts: Facts, view: View, found: Scores | None = None) -> Iterator[Scores]:
    """Every reading of the scores.

    Raises:
        NotProvenError: An operator has no rule; raised when no reading is left.
    """
    found = found or Scores()
    node = view.value.producer()
    product = find_product(facts, node)
    if product is not None:
        yield dataclasses.replace(found, product=product, layout=view.layout)
        return
    before = cast_back(facts, view)
    move = step_back(facts, view) if before is None else None
    if before is not None:
        yield from walk_scores(facts, before, found)
    elif move is not None and not move.copied:
        yield from walk_scores(facts, move.view, found)
    elif (shifted := _before_shift(facts, view, found)) is not None:
        yield from walk_scores(facts, shifted, found)
    elif is_op(node, "Add", "Mul", "Div", "Where") and node is not None:
        yield from _readings(facts, view, node, found)
    else:
        raise NotProvenError(_why(node), node)


def _before_shift(facts: Facts, view: View, found: Scores) -> View | None:
    """The scores before the largest of each row was subtracted; softmax is blind to that."""
    node = producer(view.value, "Sub")
    if node is None or node.inputs[0] is None or found.softcap:
        return None
    largest = producer(uncast(node.inputs[1]), "ReduceMax")
    if largest is None or not integer(largest, "keepdims", 1):
        return None
    axes = node_axes(facts.constants, largest)
    places = [i % view.rank for i in axes or ()]
    over_columns = [labels(view.layout[i]) for i in places] == [(COLUMN,)]
    if not over_columns or not is_same(largest.inputs[0], node.inputs[0]):
        return None
    return View(node.inputs[0], view.layout)


def _why(node: ir.Node | None) -> str:
    if is_op(node, "Concat"):
        return "a column is concatenated to the scores (attention sink)"
    if is_op(node, "QuantizeLinear", "DequantizeLinear"):
        return "the scores are quantized"
    return f"the scores pass through {describe(node)}, which has no rule"


def _readings(facts: Facts, view: View, node: ir.Node, found: Scores) -> Iterator[Scores]:
    first: NotProvenError | None = None
    any_reading = False
    for step in _steps(facts, view, node, found):
        try:
            for scores in walk_scores(facts, *step):
                any_reading = True
                yield scores
        except NotProvenError as error:
            first = first or error
    if not any_reading:
        raise first or NotProvenError(_why(node), node)


def _steps(facts: Facts, view: View, node: ir.Node, found: Scores) -> Iterator[tuple[View, Scores]]:
    if node.op_type == "Where":
        yield from _filled(facts, view, node, found)
        return
    inputs = [value for value in node.inputs if value is not None]
    pairs = [(inputs[0], inputs[1])]
    if node.op_type != "Div":
        pairs.append((inputs[1], inputs[0]))
    for source, other in pairs:
        if facts.constants.array(source) is not None or not facts.may_keep_sizes(
            source, view.value
        ):
            continue
        rule = _added if node.op_type == "Add" else _scaled
        step = rule(facts, view, source, other, found)
        if step is not None:
            yield step


def _added(
    facts: Facts, view: View, source: ir.Value, other: ir.Value, found: Scores
) -> tuple[View, Scores] | None:
    layout = _mask_layout(facts, other, view.layout)
    if layout is None or found.factors or found.softcap:
        return None
    mask = Mask(View(other, layout), factor=found.scale)
    return View(source, view.layout), dataclasses.replace(found, masks=(*found.masks, mask))


def _mask_layout(facts: Facts, value: ir.Value, layout: Layout) -> Layout | None:
    """The layout of a mask over all rows and columns; a digit of them is neither."""
    own = aligned_layout(facts, value, layout)
    return own if own is not None and are_whole(own, layout, (ROW, COLUMN)) else None


def _scaled(
    facts: Facts, view: View, source: ir.Value, other: ir.Value, found: Scores
) -> tuple[View, Scores] | None:
    node = view.value.producer()
    number = facts.constants.scalar(other)
    if number is not None:
        capped = _capped(facts, view, source, number, found) if is_op(node, "Mul") else None
        if capped is not None:
            return capped
        if is_op(node, "Div"):
            if number == 0:
                return None
            number = 1 / number
        return View(source, view.layout), dataclasses.replace(found, scale=found.scale * number)
    layout = aligned_layout(facts, other, view.layout)
    if layout is None or not is_op(node, "Mul"):
        return None
    if any(COLUMN in labels(factors) for factors in layout):
        return None
    factors = (*found.factors, View(other, layout))
    return View(source, view.layout), dataclasses.replace(found, factors=factors)


def _capped(
    facts: Facts, view: View, source: ir.Value, cap: float, found: Scores
) -> tuple[View, Scores] | None:
    """C * tanh(s / c), nothing but masks after it."""
    tanh = producer(uncast(source), "Tanh")
    inner = None if tanh is None else producer(uncast(tanh.inputs[0]), "Div", "Mul")
    if inner is None or inner.inputs[0] is None or found.softcap:
        return None
    if found.scale != 1.0 or found.factors:
        return None
    for scores, other in (inner.inputs, inner.inputs[::-1]):
        number = facts.constants.scalar(other)
        if not number or scores is None or (inner.op_type == "Div" and other is inner.inputs[0]):
            continue
        divisor = number if inner.op_type == "Div" else 1 / number
        if math.isclose(divisor, cap, rel_tol=1e-6) and cap > 0:
            return View(scores, view.layout), dataclasses.replace(found, softcap=cap)
    return None


def _filled(
    facts: Facts, view: View, node: ir.Node, found: Scores
) -> Iterator[tuple[View, Scores]]:
    condition, chosen, other = node.inputs
    if condition is None or found.factors or found.softcap or found.scale <= 0:
        return
    layout = _mask_layout(facts, condition, view.layout)
    if layout is None:
        return
    for keeps, source, fill in ((True, chosen, other), (False, other, chosen)):
        number = facts.constants.scalar(fill)
        if source is None or number is None or not facts.may_keep_sizes(source, view.value):
            continue
        mask = Mask(View(condition, layout), keeps, fill=number * found.scale)
        yield View(source, view.layout), dataclasses.replace(found, masks=(*found.masks, mask))
