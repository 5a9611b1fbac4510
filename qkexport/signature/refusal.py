"""The error that every rule about a node's tensors raises."""

from __future__ import annotations

from qkexport.errors import InvalidSpecError
from qkexport.spec import OP_TYPE


def error(rule: str, value: object, note: str | None = None) -> InvalidSpecError:
    """An error that reads `QKNormAttention <rule>, got <value>.` plus what is accepted."""
    return InvalidSpecError(f"{OP_TYPE} {rule}, got {value}.", note=note)
