"""One rotation found in a graph, with the caches as the operator wants them."""

from __future__ import annotations

import dataclasses

from qkexport.match import recipe as r
from qkexport.match.facts import View
from qkexport.match.layout import BATCH, CHANNEL, HEAD, ROW, Layout, labels


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
    """

    source: View
    cos: r.Recipe
    sin: r.Recipe
    rotary_dim: int
    interleaved: bool
    positions: r.Recipe | None = None


def arranged_cache(recipe: r.Recipe, layout: Layout) -> r.Recipe | None:
    """A tensor of angles as [B or 1, S, W], or [B or 1, H, S, W] where heads differ."""
    found = {}
    for place, factors in enumerate(layout):
        names = set(labels(factors))
        if len(names) > 1 or names & found.keys():
            return None
        found.update(dict.fromkeys(names, place))
    if ROW not in found or CHANNEL not in found:
        return None
    order = (BATCH, HEAD, ROW, CHANNEL) if HEAD in found else (BATCH, ROW, CHANNEL)
    kept = [place for place, factors in enumerate(layout) if factors]
    squeezed = r.squeeze(recipe, [i for i, factors in enumerate(layout) if not factors])
    present = [label for label in order if label in found]
    permuted = r.transpose(squeezed, [kept.index(found[label]) for label in present])
    return r.unsqueeze(permuted, [i for i, label in enumerate(order) if label not in found])
