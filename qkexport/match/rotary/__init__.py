"""Rotary position embedding: the operator, and any arithmetic that amounts to it."""

from __future__ import annotations

from qkexport.match.facts import Facts, View
from qkexport.match.rotary.fused import fused_rotation
from qkexport.match.rotary.pairs import written_rotation
from qkexport.match.rotary.rotation import Rotation
from qkexport.match.rotary.rows import RowPart, joined_rotation, rotation_of_rows, unrotated

__all__ = ["Rotation", "RowPart", "find_rotation", "joined_rotation", "unrotated"]


def find_rotation(facts: Facts, view: View) -> Rotation | None:
    """The rotation whose result a view is, of all its tokens or of some."""
    whole = fused_rotation(facts, view) or written_rotation(facts, view)
    return whole or rotation_of_rows(facts, view, find_rotation)
