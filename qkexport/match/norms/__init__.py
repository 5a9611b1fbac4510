"""Normalizations of queries and keys, one spelling a file."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from qkexport.match.facts import Facts
from qkexport.match.norms.fused import fused_norm
from qkexport.match.norms.l2 import l2_norm
from qkexport.match.norms.layer import with_mean_removed
from qkexport.match.norms.likeness import resembles_norm
from qkexport.match.norms.norm import Norm, PerHead
from qkexport.match.norms.per_head import per_head_norm
from qkexport.match.norms.rms import rms_norm

__all__ = ["Norm", "PerHead", "find_norm", "resembles_norm"]

_RULES: Final = (fused_norm, rms_norm, l2_norm, per_head_norm)


def find_norm(facts: Facts, value: ir.Value) -> Norm | None:
    """The normalization whose result a value is, before any gain that is a separate operator."""
    for rule in _RULES:
        norm = rule(facts, value)
        if norm is not None:
            return with_mean_removed(facts, norm)
    return None
