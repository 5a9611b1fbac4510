"""All masks of an attention as the one input the operator has.

bool masks          joined with And; "masked" is turned into "attend"
additive masks      summed
both, or a finite fill      bool masks become additive ones: 0 or the fill
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import onnx_ir as ir

from qkexport.match import recipe as r
from qkexport.match.arrange import ordered
from qkexport.match.core import Mask
from qkexport.match.facts import FLOATS, Facts, View
from qkexport.match.layout import BATCH, COLUMN, HEAD, ROW, Layout
from qkexport.match.proof import NotProvenError
from qkexport.match.sizes import ONE

_ORDER: Final = (BATCH, HEAD, ROW, COLUMN)

# A fill this low swallows every normalized score, so a row filled with it is uniform. The lowest
# float32 does the same whatever the scores are, also where they are computed in float32.
_SWALLOWS: Final = -1e4
_LOWEST: Final = float(np.finfo(np.float32).min)


def mask_recipe(facts: Facts, masks: Sequence[Mask], node: ir.Node) -> r.Recipe | None:
    """The operator's attn_mask, or None where there is no mask.

    Raises:
        NotProvenError: A mask cannot be said in one tensor of scores.
    """
    hiding = [mask for mask in masks if mask.keeps is not None]
    adding = [mask for mask in masks if mask.keeps is None]
    _check_batches(masks, node)
    keep = _all_of([_kept(facts, mask, node) for mask in hiding])
    if keep is None and not adding:
        return None
    finite = [mask for mask in hiding if mask.fill != -math.inf]
    if any(not mask.fill <= _SWALLOWS for mask in finite):
        raise NotProvenError("masked scores are filled with a number that does not mask", node)
    if keep is not None and not adding and not finite:
        return keep
    terms = [_added(facts, mask, node) for mask in adding]
    if keep is not None:
        fill = r.floats(_LOWEST if finite else -math.inf)
        terms = [r.cast(term, ir.DataType.FLOAT) for term in terms]
        terms.append(r.where(keep, r.floats(0.0), fill))
    return _sum_of(terms)


def _sum_of(terms: list[r.Recipe]) -> r.Recipe:
    total = terms[0]
    if len(terms) > 1:
        total = r.cast(total, ir.DataType.FLOAT)
    for term in terms[1:]:
        total = r.binary("Add", total, r.cast(term, ir.DataType.FLOAT))
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
    recipe = ordered(source, view.layout, _ORDER)
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
