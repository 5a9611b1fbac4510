"""Rotation of some tokens only: the others turn by nothing, cos 1 and sin 0.

Concat(Slice(x, :n), rotated(Slice(x, n:)))        prefix tokens, text tokens
ScatterND(x, rows, rotated(Slice(x, rows)))        written in place
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import onnx_ir as ir

from qkexport.match import recipe as r
from qkexport.match.facts import Facts, View, data_input, integer, producer
from qkexport.match.layout import ROW, Layout, axes_with, axis, extent, labels
from qkexport.match.moves import step_back
from qkexport.match.rotary.rotation import Rotation, with_rows
from qkexport.match.shapes import Vector
from qkexport.match.sizes import Size

FindRotation: TypeAlias = Callable[[Facts, View], Rotation | None]


@dataclasses.dataclass(frozen=True)
class RowPart:
    """Some tokens, rotated or not.

    Attributes:
        source: The tokens before they are rotated.
        rotation: How, or None.
        length: How many, [1] int64; None: as many as the source has.
    """

    source: View
    rotation: Rotation | None
    length: r.Recipe | None = None


def rotation_of_rows(facts: Facts, view: View, find_rotation: FindRotation) -> Rotation | None:
    """Matches the final `Concat` or `ScatterND` over tokens."""
    parts = _concatenated(facts, view, find_rotation) or _scattered(facts, view, find_rotation)
    if parts is None:
        return None
    source, rows = parts
    rotation = joined_rotation(facts, rows)
    return None if rotation is None else dataclasses.replace(rotation, source=source)


def joined_rotation(facts: Facts, parts: Sequence[RowPart]) -> Rotation | None:
    """One rotation for tokens that lie one after another, or None where none is rotated."""
    rotations = [part.rotation for part in parts if part.rotation is not None]
    if not rotations:
        return None
    first = rotations[0]
    for other in rotations:
        alike = (other.rotary_dim, other.interleaved) == (first.rotary_dim, first.interleaved)
        if not alike or other.positions is not None:
            return None
    caches = []
    for name, unit in (("cos", 1.0), ("sin", 0.0)):
        rows = [
            _identity(facts, part, getattr(first, name), unit)
            if part.rotation is None
            else getattr(part.rotation, name)
            for part in parts
        ]
        known = [row for row in rows if row is not None]
        if len(known) != len(rows):
            return None
        caches.append(r.concat(known, first.rank - 2))
    return dataclasses.replace(first, cos=caches[0], sin=caches[1])


def unrotated(facts: Facts, tokens: Sequence[View], like: Rotation) -> Rotation | None:
    """A rotation by nothing for these tokens; the views are of the same ones."""
    for view in tokens:
        still = RowPart(view, None)
        cos, sin = _identity(facts, still, like.cos, 1.0), _identity(facts, still, like.sin, 0.0)
        if cos is not None and sin is not None:
            return dataclasses.replace(like, source=view, cos=cos, sin=sin)
    return None


def _identity(facts: Facts, part: RowPart, like: r.Recipe, unit: float) -> r.Recipe | None:
    """A cache of angle zero for these tokens, as wide as another."""
    layout = part.source.layout
    if part.length is not None:
        return with_rows(facts, like, part.length, unit)
    rows = extent(layout, ROW).known
    if rows is not None:
        return with_rows(facts, like, r.integers([rows]), unit)
    places = axes_with(layout, ROW)
    if len(places) != 1 or len(layout[places[0]]) != 1:
        return None
    length = r.shape_of(r.Source(part.source.value), places[0], places[0] + 1)
    return with_rows(facts, like, length, unit)


def _concatenated(
    facts: Facts, view: View, find_rotation: FindRotation
) -> tuple[View, list[RowPart]] | None:
    node = producer(view.value, "Concat")
    if node is None or None in node.inputs:
        return None
    place = integer(node, "axis", 0) % view.rank
    if labels(view.layout[place]) != (ROW,):
        return None
    parts, pieces = [], []
    for value in node.inputs:
        if value is None:
            return None
        part = _row_part(
            facts, View(value, _own_rows(facts, view.layout, place, value)), find_rotation
        )
        piece = _piece(facts, part.source, place)
        if piece is None:
            return None
        parts.append(part)
        pieces.append(piece)
    if not _covers(pieces) or all(part.rotation is None for part in parts):
        return None
    return pieces[0].source, parts


def _row_part(facts: Facts, view: View, find_rotation: FindRotation) -> RowPart:
    at = view
    while True:
        rotation = find_rotation(facts, at)
        if rotation is not None:
            return RowPart(rotation.source, rotation)
        move = step_back(facts, at)
        if move is None or move.copied:
            return RowPart(view, None)
        at = move.view


def _own_rows(facts: Facts, layout: Layout, place: int, value: ir.Value) -> Layout:
    sizes = facts.sizes(value)
    if sizes is None:
        return layout
    factor = dataclasses.replace(layout[place][0], size=sizes[place])
    return (*layout[:place], () if sizes[place] == Size(1) else (factor,), *layout[place + 1 :])


@dataclasses.dataclass(frozen=True)
class _Piece:
    """Rows [start, end) of a view; bounds as written, None for an open end."""

    source: View
    start: object
    end: object


def _piece(facts: Facts, view: View, place: int) -> _Piece | None:
    """What a view is a piece of; `place` is the axis of tokens where there is only one token."""
    moved = False
    while producer(view.value, "Slice", "Split") is None:
        move = step_back(facts, view)
        if move is None or move.copied:
            return None
        view, moved = move.view, True
    rows = axes_with(view.layout, ROW)
    if len(rows) > 1 or (moved and not rows):
        return None
    place = next(iter(rows), place)
    node = producer(view.value, "Slice", "Split")
    if node is None or node.inputs[0] is None:
        return None
    if node.op_type == "Split":
        return _split_piece(facts, view, node, place)
    axes = facts.constants.integers(data_input(node, 3))
    steps = data_input(node, 4)
    if axes is None or len(axes) != 1 or axes[0] % view.rank != place:
        return None
    if steps is not None and facts.constants.integers(steps) != (1,):
        return None
    start, end = _bound(facts, node.inputs[1]), _bound(facts, node.inputs[2])
    sizes = facts.sizes(node.inputs[0])
    if sizes is not None and end in (sizes[place], sizes[place].known):
        end = None
    source = _whole(facts, view, node.inputs[0], place)
    return None if source is None else _Piece(source, start, end)


def _whole(facts: Facts, view: View, value: ir.Value, place: int) -> View | None:
    """The view that a piece was cut from."""
    sizes = facts.sizes(value)
    if sizes is None or len(sizes) != view.rank or set(labels(view.layout[place])) - {ROW}:
        return None
    layout = (*view.layout[:place], axis(ROW, sizes[place]), *view.layout[place + 1 :])
    return View(value, layout)


def _split_piece(facts: Facts, view: View, node: ir.Node, place: int) -> _Piece | None:
    if integer(node, "axis", 0) % view.rank != place or node.inputs[0] is None:
        return None
    source = _whole(facts, view, node.inputs[0], place)
    if source is None:
        return None
    index = node.outputs.index(view.value)
    start = 0 if index == 0 else (node, index)
    end = None if index == len(node.outputs) - 1 else (node, index + 1)
    return _Piece(source, start, end)


def _bound(facts: Facts, value: ir.Value | None) -> object:
    integers = facts.constants.integers(value)
    if integers is not None and len(integers) == 1:
        return None if integers[0] >= 2**31 - 1 else integers[0]
    vector: Vector | None = facts.shapes.vector(value)
    if vector is not None and len(vector) == 1 and vector[0] is not None:
        return vector[0]
    return value


def _covers(pieces: Sequence[_Piece]) -> bool:
    """Whether the pieces are all rows of one tensor in order."""
    if len({piece.source for piece in pieces}) != 1:
        return False
    if pieces[0].start != 0 or pieces[-1].end is not None:
        return False
    return all(
        left.end is not None and left.end == right.start
        for left, right in itertools.pairwise(pieces)
    )


def _scattered(
    facts: Facts, view: View, find_rotation: FindRotation
) -> tuple[View, list[RowPart]] | None:
    """In-place rotation of the rows from some row on."""
    node = producer(view.value, "ScatterND")
    if node is None or None in node.inputs[:3] or labels(view.layout[0]) != (ROW,):
        return None
    data, indices, updates = (value for value in node.inputs[:3] if value is not None)
    reduction = node.attributes.get("reduction")
    if reduction is not None and reduction.as_string() != "none":
        return None
    tail = _tail_rows(facts, indices, data)
    part = _row_part(facts, View(updates, _own_rows(facts, view.layout, 0, updates)), find_rotation)
    piece = _piece(facts, part.source, 0)
    before = View(data, view.layout)
    if tail is None or part.rotation is None or piece is None:
        return None
    start, length = tail
    if (piece.start, piece.end) != (start, None) or not _is_view_of(facts, before, piece.source):
        return None
    return before, [part] if start == 0 else [RowPart(before, None, length), part]


def _tail_rows(facts: Facts, indices: ir.Value, data: ir.Value) -> tuple[object, r.Recipe] | None:
    """(start, start as a recipe) of row numbers start, start + 1, ... to the last row."""
    total = facts.sizes(data)
    rows = facts.constants.array(indices)
    if total is None:
        return None
    if rows is not None:
        numbers = rows.reshape(-1).tolist()
        if total[0].known is None or numbers != list(range(numbers[0], total[0].known)):
            return None
        return numbers[0], r.integers([numbers[0]])
    column = producer(indices, "Unsqueeze")
    cut = None if column is None else producer(column.inputs[0], "Slice")
    numbers_node = None if cut is None else producer(cut.inputs[0], "Range")
    if cut is None or numbers_node is None or cut.inputs[1] is None:
        return None
    sizes = facts.sizes(numbers_node.outputs[0])
    if sizes != total[:1] or _bound(facts, cut.inputs[2]) is not None:
        return None
    if facts.constants.scalar(numbers_node.inputs[0]) != 0.0:
        return None
    if facts.constants.scalar(numbers_node.inputs[2]) != 1.0:
        return None
    if data_input(cut, 4) is not None and facts.constants.integers(data_input(cut, 4)) != (1,):
        return None
    return _bound(facts, cut.inputs[1]), r.Source(cut.inputs[1])


def _is_view_of(facts: Facts, view: View, source: View) -> bool:
    """Whether moving back from a view leads to another."""
    while view != source:
        move = step_back(facts, view)
        if move is None or move.copied:
            return False
        view = move.view
    return True
