"""Layer norm written out: a root mean square norm of what is left when the mean is removed.

d = x - mean(x);   d / sqrt(mean(d^2) + eps)
"""

from __future__ import annotations

import dataclasses

from qkexport.match.facts import Facts, integer, producer
from qkexport.match.norms.norm import Norm, is_same, normalized_axes, uncast
from qkexport.match.shapes import node_axes
from qkexport.spec import QkNorm


def with_mean_removed(facts: Facts, norm: Norm) -> Norm:
    """The norm as layer norm where its source is x - mean(x) over the same axes, else itself."""
    if norm.kind is not QkNorm.RMS:
        return norm
    centered = producer(uncast(norm.source), "Sub")
    if centered is None or centered.inputs[0] is None:
        return norm
    source, mean = centered.inputs[0], producer(uncast(centered.inputs[1]), "ReduceMean")
    if mean is None or not integer(mean, "keepdims", 1) or not is_same(mean.inputs[0], source):
        return norm
    axes = node_axes(facts.constants, mean)
    if not axes or normalized_axes(facts, source, axes) != norm.axes:
        return norm
    if not facts.same_sizes(source, norm.source):
        return norm
    return dataclasses.replace(norm, kind=QkNorm.LAYER, source=source)
