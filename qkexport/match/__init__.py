"""Finds the attentions of an ONNX graph and proves which of them are QKNormAttention."""

from __future__ import annotations

from qkexport.match.finder import find_attention
from qkexport.match.report import Fused, Match, MatchReport, NearMiss, Replacement

__all__ = ["Fused", "Match", "MatchReport", "NearMiss", "Replacement", "find_attention"]
