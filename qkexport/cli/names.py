"""Lists of names on a command line."""

from __future__ import annotations


def split_names(values: tuple[str, ...]) -> tuple[str, ...]:
    """Names given one by one or with commas."""
    return tuple(name.strip() for value in values for name in value.split(",") if name.strip())
