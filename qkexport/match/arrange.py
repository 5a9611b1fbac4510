"""Tensors in the axis order the operator wants, by transposes and reshapes of what is there.

token major   [b, s, h*d]      no element moves
head major    [b, h, s, d]     a transpose where tokens come first
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from qkexport.match import recipe as r
from qkexport.match.factors import whole
from qkexport.match.facts import View
from qkexport.match.layout import BATCH, CHANNEL, HEAD, ROW, Axis, Layout, extent, labels


def token_major(view: View) -> r.Recipe | None:
    """[b, s, h*d] without moving elements; None where that takes a transpose."""
    heads, channels = extent(view.layout, HEAD), extent(view.layout, CHANNEL)
    width = heads.known, channels.known
    if width[0] is None or width[1] is None:
        return None
    recipe: r.Recipe = r.Source(view.value)
    layout = view.layout
    if view.rank == 2:
        recipe, layout = r.unsqueeze(recipe, [0]), ((), *layout)
    if len(layout) not in (3, 4) or not _only(layout[0], BATCH) or not _only(layout[1], ROW):
        return None
    if len(layout) == 4:
        split = whole(layout[2], HEAD, heads) and whole(layout[3], CHANNEL, channels)
        return r.reshape(recipe, [0, 0, width[0] * width[1]]) if split else None
    merged = [(f.label, f.size, f.stride.count) for f in layout[2]]
    wanted = [(label, size, 1) for label, size in ((HEAD, heads), (CHANNEL, channels))]
    return recipe if merged == [item for item in wanted if item[1].known != 1] else None


def head_major(view: View) -> r.Recipe | None:
    """[b, h, s, d], transposed as needed."""
    return ordered(r.Source(view.value), view.layout, (BATCH, HEAD, ROW, CHANNEL))


def ordered(recipe: r.Recipe, layout: Layout, order: Sequence[str]) -> r.Recipe | None:
    """One axis for each label, in this order, of size one where the layout lacks it."""
    found = label_axes(layout)
    if found is None or not found.keys() <= set(order):
        return None
    kept = [place for place, factors in enumerate(layout) if factors]
    present = [label for label in order if label in found]
    moved = [kept.index(found[label]) for label in present]
    missing = [i for i, label in enumerate(order) if label not in found]
    empty = [place for place, factors in enumerate(layout) if not factors]
    if moved == sorted(moved) and empty == missing:
        return recipe
    return r.unsqueeze(r.transpose(r.squeeze(recipe, empty), moved), missing)


def taken_apart(recipe: r.Recipe, layout: Layout) -> tuple[r.Recipe, Layout] | None:
    """[b*h, i, j] as [b, h, i, j]: afterwards no axis holds more than one digit."""
    if all(len(factors) <= 1 for factors in layout):
        return recipe, layout
    shape: list[r.Recipe] = []
    for place, factors in enumerate(layout):
        sizes = [factor.size.known for factor in factors]
        if sizes == [None]:
            shape.append(r.shape_of(recipe, place, place + 1))
        else:
            shape.append(r.integers([-1 if size is None else size for size in sizes or [1]]))
    target = r.concat(shape, 0)
    holes = [i for part in shape if isinstance(part, r.Constant) for i in part.array if i < 0]
    if len(holes) > 1:
        return None
    split: list[Axis] = []
    for factors in layout:
        split.extend((factor,) for factor in factors)
        split.extend([()] if not factors else [])
    if isinstance(target, r.Constant):
        return r.reshape(recipe, [int(size) for size in target.array]), tuple(split)
    return r.Apply("Reshape", (recipe, target)), tuple(split)


def restored(recipe: r.Recipe, order: Sequence[str], layout: Layout) -> r.Recipe | None:
    """The inverse of `ordered`: from one axis a label to the axes of a layout."""
    found = label_axes(layout)
    if found is None or not found.keys() <= set(order):
        return None
    missing = [i for i, label in enumerate(order) if label not in found]
    present = [label for label in order if label in found]
    kept = sorted(found, key=lambda label: found[label])
    empty = [place for place, factors in enumerate(layout) if not factors]
    moved = [present.index(label) for label in kept]
    if moved == sorted(moved) and empty == missing:
        return recipe
    return r.unsqueeze(r.transpose(r.squeeze(recipe, missing), moved), empty)


def label_axes(layout: Layout) -> dict[str, int] | None:
    """The axis of each label, where each has one of its own with all its digits in order."""
    found: dict[str, int] = {}
    for place, factors in enumerate(layout):
        names = set(labels(factors))
        if len(factors) > 1 or names & found.keys():
            return None
        found.update(dict.fromkeys(names, place))
    return found


def first(recipes: Iterable[r.Recipe | None]) -> r.Recipe | None:
    """The first that exists, plain values before computed ones."""
    found = [recipe for recipe in recipes if recipe is not None]
    plain = [recipe for recipe in found if not isinstance(recipe, r.Apply)]
    return next(iter([*plain, *found]), None)


def _only(factors: tuple[object, ...], label: str) -> bool:
    return len(factors) <= 1 and all(getattr(f, "label", "") == label for f in factors)
