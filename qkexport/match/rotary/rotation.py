"""One rotation found in a graph, with the caches as the operator wants them."""

from __future__ import annotations

import dataclasses

import numpy as np

from qkexport.match import recipe as r
from qkexport.match.facts import FLOATS, Facts, View
from qkexport.match.layout import BATCH, CHANNEL, HEAD, ROW, Layout, labels
from qkexport.match.types import recipe_types


@dataclasses.dataclass(frozen=True)
class Rotation:
    """x = rotated(source).

    Attributes:
        source: What is rotated.
        cos: [B or 1, S, W], [B or 1, H or 1, S, W], or [Mp, W] with positions.
        sin: Likewise; signs are those of the operator's pair layout.
        rotary_dim: Leading channels that turn.
        interleaved: Pairs are neighbours.
        positions: Rows of the caches, where they have rank 2.
        rank: Of the caches.
    """

    source: View
    cos: r.Recipe
    sin: r.Recipe
    rotary_dim: int
    interleaved: bool
    positions: r.Recipe | None = None
    rank: int = 3


def arranged_cache(recipe: r.Recipe, layout: Layout, *, one_row: bool) -> r.Recipe | None:
    """A tensor of angles as [B or 1, S, W], or [B or 1, H, S, W] where heads differ.

    Args:
        recipe: The tensor.
        layout: Its layout.
        one_row: There is one token, so the tensor need not have an axis for it.
    """
    found: dict[str, int] = {}
    for place, factors in enumerate(layout):
        names = set(labels(factors))
        if len(names) > 1 or names & found.keys():
            return None
        found.update(dict.fromkeys(names, place))
    if (ROW not in found and not one_row) or CHANNEL not in found:
        return None
    order = (BATCH, HEAD, ROW, CHANNEL) if HEAD in found else (BATCH, ROW, CHANNEL)
    kept = [place for place, factors in enumerate(layout) if factors]
    squeezed = r.squeeze(recipe, [i for i, factors in enumerate(layout) if not factors])
    present = [label for label in order if label in found]
    permuted = r.transpose(squeezed, [kept.index(found[label]) for label in present])
    return r.unsqueeze(permuted, [i for i, label in enumerate(order) if label not in found])


def with_rows(facts: Facts, like: r.Recipe, rows: r.Recipe, unit: float) -> r.Recipe | None:
    """A cache filled with one number, `rows` long and otherwise shaped and typed as another."""
    known = recipe_types(facts, like, {})
    width, rank = known.sizes[-1].known, len(known.sizes)
    if width is None or known.dtype not in FLOATS:
        return None
    fill = r.Constant(np.full([1] * rank, unit, known.dtype.numpy()))
    leading = [
        r.integers([size.known]) if size.known is not None else r.shape_of(like, i, i + 1)
        for i, size in enumerate(known.sizes[:-2])
    ]
    shape = r.concat([*leading, rows, r.integers([width])], 0)
    if isinstance(shape, r.Constant):
        return r.Constant(np.broadcast_to(fill.array, tuple(int(i) for i in shape.array)).copy())
    return r.Apply("Expand", (fill, shape))
