"""Whether what the scores compare are tokens.

Channel attention (XCiT, EdgeNeXt, Restormer) computes the same formula on transposed operands: its
rows are the channels of a head and its head_dim is the number of tokens. It is left alone: that
many channels are not what kernels are made for, and the number changes with the input.

    tokens      [b, s, h*d]   heads are cut from the axis that is normalized
    channels    [b, s, h*c]   heads are cut from the rows
"""

from __future__ import annotations

from qkexport.match.facts import Facts, View, data_input, integer, producer
from qkexport.match.layout import BATCH, HEAD, ROW, Axis, Factor, Layout, labels
from qkexport.match.moves import cast_back, step_back
from qkexport.match.shapes import slice_ranges
from qkexport.match.sizes import Size

_STREAM = "stream"  # which of query, key and value, where one projection makes them all


def compares_channels(facts: Facts, view: View) -> bool:
    """Whether rows and heads come from one axis of the projection."""
    end = _projection(facts, view)
    last = labels(end.layout[-1]) if end.layout else ()
    return (ROW in last and len(last) > 1) or any(map(_heads_over_rows, end.layout))


def _heads_over_rows(factors: Axis) -> bool:
    names = labels(factors)
    if HEAD not in names or ROW not in names or BATCH in names:
        return False
    return names.index(HEAD) < names.index(ROW)


def _projection(facts: Facts, view: View) -> View:
    """The view from which query, key and value are cut."""
    while True:
        move = step_back(facts, view)
        if move is not None and not move.copied:
            view = move.view
            continue
        before = cast_back(facts, view) or _selected(facts, view)
        if before is None:
            return view
        view = before


def _selected(facts: Facts, view: View) -> View | None:
    """Before one of several streams was selected, which then are an axis more or a longer one."""
    node = producer(view.value, "Slice", "Gather", "Split")
    source = None if node is None else node.inputs[0]
    sizes = None if source is None else facts.sizes(source)
    if node is None or source is None or sizes is None:
        return None
    if node.op_type == "Slice":
        cuts = slice_ranges(facts.shapes, node, sizes)
        if cuts is None or len(cuts) != 1:
            return None
        place = next(iter(cuts))
    else:
        place = integer(node, "axis", 0) % len(sizes)
    layout = view.layout
    if node.op_type == "Gather":
        index = facts.constants.array(data_input(node, 1))
        if index is None or index.ndim:
            return None
        layout = (*layout[:place], (), *layout[place:])
    return View(source, _with_stream(layout, place, sizes[place]))


def _with_stream(layout: Layout, place: int, size: Size) -> Layout:
    """An axis that selection shortened; what it holds stays known by its labels."""
    kept = layout[place]
    if kept:
        return layout
    return (*layout[:place], (Factor(_STREAM, size),), *layout[place + 1 :])
