"""All masks of an attention as the one input the operator has.

bool masks          joined with And; "masked" is turned into "attend"
additive masks      summed
both, or a finite fill      where(keep, sum so far, fill)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import onnx_ir as ir

from qkexport.match import recipe as r
from qkexport.match.arrange import ordered, taken_apart
from qkexport.match.core import Mask
from qkexport.match.facts import FLOATS, Facts, View
from qkexport.match.layout import BATCH, COLUMN, HEAD, ROW, Layout
from qkexport.match.proof import NotProvenError
from qkexport.match.sizes import ONE

_ORDER: Final = (BATCH, HEAD, ROW, COLUMN)

# A fill this low hides: exp(-1e4) is zero whatever the normalized scores are.
_HIDES: Final = -1e4

# The operator adds the fill, the graph replaces scores by it. At -1e30 the sum is the fill itself,
# so a row that is filled throughout is uniform in both; added to the lowest float32 of another mask
# it is swallowed in turn.
_SWALLOWS: Final = -1e30


def mask_recipe(facts: Facts, masks: Sequence[Mask], node: ir.Node) -> r.Recipe | None:
    """The operator's attn_mask, or None where there is no mask.

    Args:
        facts: The graph.
        masks: The one applied last first.
        node: What a failure is blamed on.

    Raises:
        NotProvenError: A mask cannot be said in one tensor of scores.
    """
    _check_batches(masks, node)
    if any(mask.keeps is not None and not mask.fill <= _HIDES for mask in masks):
        raise NotProvenError("masked scores are filled with a number that does not mask", node)
    if all(mask.keeps is not None and mask.fill == -math.inf for mask in masks):
        return _all_of([_kept(facts, mask, node) for mask in masks])
    if len(masks) == 1 and masks[0].keeps is None:
        return _added(facts, masks[0], node)
    return _as_sum(facts, masks, node)


def _as_sum(facts: Facts, masks: Sequence[Mask], node: ir.Node) -> r.Recipe:
    """What the masks, one after another, make of a score of zero."""
    total: r.Recipe | None = None
    for mask in reversed(masks):
        if mask.keeps is None:
            term = r.cast(_added(facts, mask, node), ir.DataType.FLOAT)
            total = term if total is None else r.binary("Add", total, term)
        else:
            fill = r.floats(mask.fill if mask.fill == -math.inf else min(mask.fill, _SWALLOWS))
            total = r.where(_kept(facts, mask, node), total or r.floats(0.0), fill)
    assert total is not None
    return total


def _all_of(keeps: list[r.Recipe]) -> r.Recipe | None:
    if not keeps:
        return None
    total = keeps[0]
    for keep in keeps[1:]:
        total = r.binary("And", total, keep)
    return total


def _kept(facts: Facts, mask: Mask, node: ir.Node) -> r.Recipe:
    recipe = _in_order(facts, mask.view, node)
    return recipe if mask.keeps else r.negation(recipe)


def _added(facts: Facts, mask: Mask, node: ir.Node) -> r.Recipe:
    if facts.dtype(mask.view.value) not in FLOATS:
        raise NotProvenError("a mask is neither bool nor floating", node)
    recipe = _in_order(facts, mask.view, node)
    if mask.factor == 1.0:
        return recipe
    return r.binary("Mul", r.cast(recipe, ir.DataType.FLOAT), r.floats(mask.factor))


def _in_order(facts: Facts, view: View, node: ir.Node) -> r.Recipe:
    array = facts.constants.array(view.value)
    if _is_plain(view.layout):
        return r.Source(view.value)
    source: r.Recipe = r.Source(view.value) if array is None else r.Constant(array)
    apart = taken_apart(source, view.layout)
    recipe = None if apart is None else ordered(*apart, _ORDER)
    if recipe is None:
        raise NotProvenError("the axes of a mask cannot be brought into order", node)
    return recipe


def _is_plain(layout: Layout) -> bool:
    """Whether the axes are the last ones of [b, h, i, j] already."""
    names = _ORDER[len(_ORDER) - len(layout) :] if len(layout) <= len(_ORDER) else ()
    return len(names) == len(layout) and all(
        all(f.label == name for f in factors) and len(factors) <= 1
        for factors, name in zip(layout, names, strict=True)
    )


def _check_batches(masks: Sequence[Mask], node: ir.Node) -> None:
    """A mask with fewer batches repeats them, so it must be the fine digit, and the same in all."""
    digits = {
        factor for m in masks for factors in m.view.layout for factor in factors
        if factor.label == BATCH
    }  # fmt: skip
    if any(factor.stride != ONE for factor in digits) or len({f.size for f in digits}) > 1:
        raise NotProvenError("masks repeat over different parts of the batch", node)
