"""One layer norm a head, each with parameters of its own.

Split over heads, LayerNormalization each, Concat over heads
"""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from qkexport.match.facts import Facts, integer, producer
from qkexport.match.norms.fused import fused_norm
from qkexport.match.norms.norm import Norm, PerHead


def per_head_norm(facts: Facts, value: ir.Value) -> Norm | None:
    """Matches the final `Concat`, its parts in the order of the `Split`."""
    node = producer(value, "Concat")
    if node is None or None in node.inputs:
        return None
    norms = [fused_norm(facts, part) for part in node.inputs if part is not None]
    split = producer(norms[0].source, "Split") if norms[0] is not None else None
    if split is None or split.inputs[0] is None:
        return None
    rank = facts.shapes.rank(value)
    if rank is None or integer(node, "axis", 0) % rank != integer(split, "axis", 0) % rank:
        return None
    found = [norm for norm in norms if norm is not None]
    if [norm.source for norm in found] != list(split.outputs):
        return None
    axis = integer(node, "axis", 0) % rank
    if axis in found[0].axes or any(not _alike(norm, found[0]) for norm in found):
        return None
    if any(_length(facts, part, axis) != 1 for part in split.outputs):
        return None
    weights = tuple(norm.weight for norm in found)
    biases = tuple(norm.bias for norm in found)
    return dataclasses.replace(
        found[0],
        source=split.inputs[0],
        weight=_collected(weights, axis),
        bias=_collected(biases, axis),
    )


def _alike(norm: Norm, first: Norm) -> bool:
    """Whether two norms differ in nothing but their source and parameters."""
    same = dataclasses.replace(norm, source=first.source, weight=first.weight, bias=first.bias)
    return same == first


def _length(facts: Facts, value: ir.Value, axis: int) -> int | None:
    sizes = facts.sizes(value)
    return None if sizes is None else sizes[axis].known


def _collected(parameters: tuple[object, ...], axis: int) -> PerHead | None:
    values = tuple(item for item in parameters if isinstance(item, ir.Value))
    return PerHead(values, axis, len(parameters)) if values else None
