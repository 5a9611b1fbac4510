"""Attention as separate operators: product, softmax, product.

[scores] -> Softmax -> (Cast, Where(IsNaN(p), 0, p), Dropout) -> MatMul(., v)
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import onnx_ir as ir

from qkexport.match.core import Core
from qkexport.match.facts import Facts, View, integer, is_op, producer
from qkexport.match.layout import (
    BATCH,
    CHANNEL,
    COLUMN,
    HEAD,
    ROW,
    Axis,
    Factor,
    Layout,
    axis,
    labels,
)
from qkexport.match.moves import cast_back, step_back
from qkexport.match.operand import copied_heads
from qkexport.match.products import Product, find_product, operand_view
from qkexport.match.proof import NotProvenError
from qkexport.match.scores import Scores, walk_scores
from qkexport.match.sizes import Size

_BETWEEN: Final = (
    "Cast", "Where", "IsNaN", "Dropout", "Identity", "Reshape", "Transpose", "Squeeze", "Unsqueeze",
    "Slice", "Mul", "Div", "Clip", "QuantizeLinear", "DequantizeLinear",
)  # fmt: skip
_MAX_BETWEEN: Final = 6


def products_after(softmax: ir.Node) -> list[ir.Node]:
    """Products that may take the probabilities of a softmax."""
    pending, found, seen = [(softmax, 0)], [], {softmax}
    while pending:
        node, depth = pending.pop()
        for user in [use.node for output in node.outputs for use in output.uses()]:
            if user in seen:
                continue
            seen.add(user)
            if is_op(user, "MatMul", "Einsum"):
                found.append(user)
            elif is_op(user, *_BETWEEN) and depth < _MAX_BETWEEN:
                pending.append((user, depth + 1))
    return found


def softmax_cores(facts: Facts, softmax: ir.Node, last: ir.Node) -> Iterator[Core]:
    """Every reading of the attention that ends in the product `last`.

    Raises:
        NotProvenError: No reading is left.
    """
    product = find_product(facts, last)
    if product is None:
        raise NotProvenError("the product with the values has no rule", last)
    for side in (0, 1):
        probabilities, value, output = _last_product(facts, product, side)
        start = _softmax_input(facts, probabilities, softmax)
        if start is None:
            continue
        yield from _cores(facts, softmax, start, output, value)
        return
    raise NotProvenError("the probabilities are changed before they meet the values", last)


def _cores(
    facts: Facts, softmax: ir.Node, start: View, output: View, value: tuple[View, int] | None
) -> Iterator[Core]:
    """The readings that are attentions; a bias may be a product too, but not of two streams."""
    failure: NotProvenError | None = None
    any_core = False
    for scores in walk_scores(facts, start):
        try:
            core = _core(facts, softmax, scores, output, value)
        except NotProvenError as error:
            failure = failure or error
            continue
        any_core = True
        yield core
    if failure is not None and not any_core:
        raise failure


def _last_product(
    facts: Facts, product: Product, side: int
) -> tuple[View | None, tuple[View, int] | None, View]:
    """Probabilities, values and result, the probabilities being operand `side`."""
    output = product.node.outputs[0]
    sizes = facts.sizes(output)
    if sizes is None:
        raise NotProvenError("the shape of the attention is not known", product.node)
    probable, channel = product.left_only, product.right_only
    letters = product.left
    if side:
        probable, channel, letters = channel, probable, product.right
    if len(channel) != 1:
        raise NotProvenError("the product with the values has no rule", product.node)
    row = max(probable, key=letters.index)  # [..., row, column]; the others are groups of heads
    shared = [c for c in product.result if c not in probable + channel]
    leading = [*shared, *(c for c in product.result if c in probable and c != row)]
    named = _leading_axes(facts, product, leading)
    layout: Layout = tuple(
        axis(ROW, size)
        if letter == row
        else axis(CHANNEL, size)
        if letter == channel
        else named[letter]
        for letter, size in zip(product.result, sizes, strict=True)
    )
    columns = axis(COLUMN, product.contracted_size)
    probabilities = operand_view(facts, product, side, layout, columns)
    value = operand_view(facts, product, 1 - side, layout, axis(ROW, product.contracted_size))
    view = None if probabilities is None or probabilities.copied else probabilities.view
    return view, _with_copies(value), View(output, layout)


def _with_copies(operand: object) -> tuple[View, int] | None:
    from qkexport.match.products import OperandView

    if not isinstance(operand, OperandView):
        return None
    times = 1 if not operand.copied else copied_heads(operand.copied)
    return None if times is None else (operand.view, times)


def _leading_axes(facts: Facts, product: Product, letters: list[str]) -> dict[str, Axis]:
    """Batch and head digits of the axes both operands share, by how many there are."""
    sizes = facts.sizes(product.node.outputs[0]) or ()
    by_letter = {letter: sizes[product.result.index(letter)] for letter in letters}
    if not letters:
        return {}
    if len(letters) == 1:
        return {letters[0]: _batch_and_heads(facts, product, by_letter[letters[0]])}
    result = {letters[0]: axis(BATCH, by_letter[letters[0]])}
    stride = Size(1)
    for letter in reversed(letters[1:]):
        size = by_letter[letter]
        if size.known is None:
            raise NotProvenError("the number of heads is not known", product.node)
        result[letter] = (Factor(HEAD, size, stride),) if size.count != 1 else ()
        stride = stride * size
    return result


def _batch_and_heads(facts: Facts, product: Product, size: Size) -> Axis:
    """An axis of batch * heads; how many heads it holds is read off the reshape that made it.

    Any division is right as long as all operands share it, which the walk proves later.
    """
    heads = max((_heads_before(facts, value) for value in product.node.inputs if value), default=1)
    batch = size.divided_by(Size(heads))
    if heads == 1 or batch is None:
        return axis(BATCH, size)
    return (*axis(BATCH, batch), Factor(HEAD, Size(heads)))


def _heads_before(facts: Facts, value: ir.Value) -> int:
    for _ in range(4):
        node = producer(value, "Reshape", "Transpose", "Cast", "Softmax")
        if node is None or node.inputs[0] is None:
            return 1
        value = node.inputs[0]
        sizes = facts.sizes(value)
        if node.op_type == "Reshape" and sizes is not None and len(sizes) == 4:
            return sizes[1].known or 1
    return 1


def _softmax_input(facts: Facts, view: View | None, softmax: ir.Node) -> View | None:
    """The softmax's argument, seen from the probabilities."""
    while view is not None:
        node = view.value.producer()
        if node is softmax:
            _check_axis(facts, view, softmax)
            source = softmax.inputs[0]
            return None if source is None else View(source, view.layout)
        if is_op(node, "Slice"):
            raise NotProvenError("columns of the probabilities are cut off (attention sink)", node)
        move = step_back(facts, view)
        if is_op(node, "Where") and node is not None:
            view = _unguarded(facts, view, node)
        elif move is not None and not move.copied:
            view = move.view
        else:
            view = cast_back(facts, view)
    return None


def _unguarded(facts: Facts, view: View, node: ir.Node) -> View | None:
    """where(isnan(p), 0, p): rows that see nothing give zero, as in the fused operator."""
    condition, zero, probabilities = node.inputs
    check = producer(condition, "IsNaN")
    if check is None or check.inputs[0] is not probabilities or probabilities is None:
        return None
    return View(probabilities, view.layout) if facts.constants.scalar(zero) == 0.0 else None


def _check_axis(facts: Facts, view: View, softmax: ir.Node) -> None:
    default = -1 if facts.opset >= 13 else 1
    place = integer(softmax, "axis", default) % view.rank
    columns = [i for i, factors in enumerate(view.layout) if COLUMN in labels(factors)]
    if columns != [place] or (facts.opset < 13 and place != view.rank - 1):
        raise NotProvenError("softmax does not run over the keys", softmax)


def _core(
    facts: Facts, softmax: ir.Node, scores: Scores, output: View, value: tuple[View, int] | None
) -> Core:
    product = scores.product
    if product is None or value is None:
        raise NotProvenError("the values are not shared the way heads share them", softmax)
    channels = axis(CHANNEL, product.contracted_size)
    if product.contracted_size.known is None:
        raise NotProvenError("head_dim is not known before run time", product.node)
    query, key = (operand_view(facts, product, i, scores.layout, channels) for i in (0, 1))
    if query is None or key is None:
        raise NotProvenError("the product of query and key has no rule", product.node)
    if any(COLUMN in labels(factors) for factors in query.view.layout):
        query, key = key, query
    copies = 1 if not key.copied else copied_heads(key.copied)
    if query.copied or copies is None:
        raise NotProvenError("queries are shared across heads or keys across batches", product.node)
    return Core(
        node=output.value.producer() or softmax,
        name=softmax.name or softmax.outputs[0].name or "Softmax",
        output=output,
        query=query.view,
        key=View(key.view.value, _columns_as_rows(key.view.layout)),
        value=value[0],
        key_copies=copies,
        value_copies=value[1],
        scale=scores.scale,
        factors=scores.factors,
        masks=scores.masks,
        softcap=scores.softcap,
    )


def _columns_as_rows(layout: Layout) -> Layout:
    return tuple(
        tuple(Factor(ROW, f.size, f.stride) if f.label == COLUMN else f for f in factors)
        for factors in layout
    )
