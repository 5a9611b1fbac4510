"""Rotary position embedding: the operator, and any arithmetic that amounts to it."""

from __future__ import annotations

from qkexport.match.facts import Facts, View
from qkexport.match.rotary.fused import fused_rotation
from qkexport.match.rotary.pairs import written_rotation
from qkexport.match.rotary.rotation import Rotation

__all__ = ["Rotation", "find_rotation"]


def find_rotation(facts: Facts, view: View) -> Rotation | None:
    """The rotation whose result a view is."""
    return fused_rotation(facts, view) or written_rotation(facts, view)
