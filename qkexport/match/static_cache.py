"""Caches written in place: fixed buffers, the new rows go to the end of what is valid.

    TensorScatter(buffer [b, h, m, d], new [b, h, s, d], first_row [b]) -> Attention(..., lengths)

The fused operator writes rows lengths - s to lengths, so lengths = first_row + s must be proven.
"""

from __future__ import annotations

import onnx_ir as ir

from qkexport.match import recipe as r
from qkexport.match.facts import Facts, View, integer, producer
from qkexport.match.layout import ROW, Factor, Layout, extent, labels
from qkexport.match.sizes import ONE, Size


def static_parts(facts: Facts, view: View) -> tuple[View, View, ir.Value] | None:
    """(buffer, new rows, first row) of a buffer with rows written into it."""
    node = producer(view.value, "TensorScatter")
    if node is None or len(node.inputs) < 3 or None in node.inputs[:3]:
        return None
    buffer, update, first_row = (value for value in node.inputs[:3] if value is not None)
    mode = node.attributes.get("mode")
    place = integer(node, "axis", -2) % view.rank
    sizes = facts.sizes(update)
    if mode is not None and mode.as_string() != "linear":
        return None
    if labels(view.layout[place]) != (ROW,) or sizes is None or len(sizes) != view.rank:
        return None
    rows = () if sizes[place] == ONE else (Factor(ROW, sizes[place]),)
    layout: Layout = (*view.layout[:place], rows, *view.layout[place + 1 :])
    return View(buffer, view.layout), View(update, layout), first_row


def lengths_follow(facts: Facts, lengths: ir.Value, first_row: ir.Value, new: View) -> bool:
    """Whether lengths = first_row + number of new rows, or first_row = lengths - that number."""
    rows = extent(new.layout, ROW)
    total = producer(lengths, "Add")
    if total is not None:
        pairs = (total.inputs, total.inputs[::-1])
        return any(a is first_row and _counts(facts, b, rows) for a, b in pairs)
    difference = producer(first_row, "Sub")
    if difference is None or difference.inputs[0] is not lengths:
        return False
    return _counts(facts, difference.inputs[1], rows)


def valid_rows(facts: Facts, first_row: ir.Value, new: View) -> r.Recipe:
    """first_row + number of new rows, [b]: an input of the graph where first_row comes from it."""
    difference = producer(first_row, "Sub")
    lengths = None if difference is None else difference.inputs[0]
    if lengths is not None and lengths_follow(facts, lengths, first_row, new):
        return r.Source(lengths)
    rows = extent(new.layout, ROW).known
    if rows is not None:
        return r.binary("Add", r.Source(first_row), r.integers([rows]))
    place = next(i for i, factors in enumerate(new.layout) if labels(factors) == (ROW,))
    count = r.shape_of(r.Source(new.value), place, place + 1)
    return r.binary("Add", r.Source(first_row), count)


def _counts(facts: Facts, value: ir.Value | None, rows: Size) -> bool:
    vector = facts.shapes.vector(value)
    return vector is not None and len(vector) == 1 and vector[0] == rows
