"""The way from the scores back to a raw query or key, one proven step at a time.

    scores <- Copied (GQA) <- Past (cache) <- Scaling <- Rotation <- Scaling (gain) <- Normed <- raw

Reshapes, transposes and casts may stand anywhere between; the layout follows them. The walk stops
at the first operator that no rule understands: what it has found until then is exact.
"""

from __future__ import annotations

import dataclasses
from typing import TypeAlias

import onnx_ir as ir

from qkexport.match.factors import Scaling, find_scaling
from qkexport.match.facts import Facts, View, integer, producer
from qkexport.match.layout import HEAD, ROW, Axis, Factor, Layout, joined, labels
from qkexport.match.moves import cast_back, step_back
from qkexport.match.norms import Norm, find_norm
from qkexport.match.rotary import Rotation, find_rotation
from qkexport.match.sizes import ONE
from qkexport.match.static_cache import static_parts


@dataclasses.dataclass(frozen=True)
class Normed:
    """A normalization.

    Attributes:
        norm: What kind.
        result: Its result, before gains that are operators of their own.
    """

    norm: Norm
    result: View


@dataclasses.dataclass(frozen=True)
class Copied:
    """Each head was repeated `times` times."""

    times: int


@dataclasses.dataclass(frozen=True)
class Past:
    """Rows of earlier steps were put in front, or the new rows into a buffer of them.

    Attributes:
        past: The earlier rows.
        present: All rows.
        new: The rows that were added.
        first_row: Where they were written, by batch entry; None: they were put behind.
    """

    past: View
    present: View
    new: View
    first_row: ir.Value | None = None


@dataclasses.dataclass(frozen=True)
class Joined:
    """Streams with norms of their own were concatenated along the tokens."""

    streams: tuple[Trail, ...]


Effect: TypeAlias = Normed | Copied | Past | Joined | Scaling | Rotation


@dataclasses.dataclass(frozen=True)
class Trail:
    """The steps of one walk, the one nearest to the scores first.

    Attributes:
        start: The view it began at.
        effects: What changed the values, each with the view before it.
        views: Views of the same elements, by number of effects passed before them.
        end: Where no rule applied any more.
    """

    start: View
    effects: tuple[Effect, ...]
    views: tuple[tuple[View, ...], ...]

    @property
    def end(self) -> View:
        return self.views[-1][-1]

    @property
    def has_norm(self) -> bool:
        return any(
            isinstance(effect, Normed)
            or (isinstance(effect, Joined) and any(s.has_norm for s in effect.streams))
            for effect in self.effects
        )


def trace_operand(facts: Facts, view: View, *, is_key: bool) -> Trail:
    """Walks back from an operand of the scores as far as rules reach.

    Args:
        facts: The graph.
        view: Query or key with its layout over batch, head, row and channel.
        is_key: Keys may be copied over heads and have a past.
    """
    walk = _Walk(facts, view, is_key)
    while walk.step():
        pass
    return Trail(view, tuple(walk.effects), tuple(map(tuple, walk.views)))


class _Walk:
    """The state of one walk; each method tries one kind of step."""

    def __init__(self, facts: Facts, view: View, is_key: bool) -> None:
        self.facts = facts
        self.view = view
        self.is_key = is_key
        self.effects: list[Effect] = []
        self.views: list[list[View]] = [[view]]
        self.normed = False

    def step(self) -> bool:
        if not self.normed and self._norm():
            return True
        if self._move() or self._rotation():
            return True
        return not self.normed and (self._scaling() or self._concat() or self._written())

    def _norm(self) -> bool:
        norm = find_norm(self.facts, self.view.value)
        if norm is None:
            return False
        self.normed = True
        self._add(Normed(norm, self.view), View(norm.source, self.view.layout))
        return True

    def _move(self) -> bool:
        before = cast_back(self.facts, self.view)
        if before is not None:
            self._stay(before)
            return True
        move = step_back(self.facts, self.view)
        if move is None:
            return False
        if not move.copied:
            self._stay(move.view)
            return True
        times = copied_heads(move.copied)
        if times is None or not self.is_key or self.normed:
            return False
        self._add(Copied(times), View(move.view.value, coarser_heads(move.view.layout, times)))
        return True

    def _rotation(self) -> bool:
        if any(isinstance(effect, Rotation) for effect in self.effects):
            return False
        rotation = find_rotation(self.facts, self.view)
        if rotation is None:
            return False
        self._add(rotation, rotation.source)
        return True

    def _scaling(self) -> bool:
        scaling = find_scaling(self.facts, self.view)
        if scaling is None:
            return False
        self._add(scaling, scaling.source)
        return True

    def _concat(self) -> bool:
        parts = row_parts(self.facts, self.view)
        if parts is None:
            return False
        trails = [trace_operand(self.facts, part, is_key=False) for part in parts]
        normed = [trail.has_norm for trail in trails]
        if all(normed):
            self.normed = True
            self.effects.append(Joined(tuple(trails)))
            self.views.append([self.view])
            return True
        if self.is_key and normed == [False, True]:
            self._add(Past(parts[0], self.view, parts[1]), parts[1])
            return True
        return False

    def _written(self) -> bool:
        parts = static_parts(self.facts, self.view) if self.is_key else None
        if parts is None:
            return False
        buffer, new, first_row = parts
        self._add(Past(buffer, self.view, new, first_row), new)
        return True

    def _stay(self, view: View) -> None:
        self.view = view
        self.views[-1].append(view)

    def _add(self, effect: Effect, view: View) -> None:
        self.effects.append(effect)
        self.views.append([view])
        self.view = view


def row_parts(facts: Facts, view: View) -> list[View] | None:
    """The parts of a concatenation along the tokens."""
    node = producer(view.value, "Concat")
    if node is None or None in node.inputs:
        return None
    place = integer(node, "axis", 0) % view.rank
    if labels(view.layout[place]) != (ROW,):
        return None
    return [
        View(value, _with_own_rows(facts, view.layout, place, value))
        for value in node.inputs
        if value is not None
    ]


def _with_own_rows(facts: Facts, layout: Layout, place: int, value: ir.Value) -> Layout:
    sizes = facts.sizes(value)
    rows: Axis = layout[place]
    if sizes is not None:
        rows = () if sizes[place] == ONE else (Factor(ROW, sizes[place]),)
    return (*layout[:place], rows, *layout[place + 1 :])


def copied_heads(copied: Axis) -> int | None:
    """How many neighbouring heads are copies of one; None where copies lie otherwise."""
    whole = joined(sorted(copied, key=lambda factor: -factor.stride.count))
    if len(whole) != 1 or whole[0].label != HEAD or whole[0].stride != ONE:
        return None
    return whole[0].size.known


def coarser_heads(layout: Layout, times: int) -> Layout:
    """The layout with heads counted in groups of `times`."""

    def coarser(factor: Factor) -> Factor:
        if factor.label != HEAD:
            return factor
        stride = dataclasses.replace(factor.stride, count=factor.stride.count // times)
        return dataclasses.replace(factor, stride=stride)

    return tuple(tuple(map(coarser, factors)) for factors in layout)
