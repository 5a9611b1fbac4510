"""Names that people misspell: the one that was meant, as a hint."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def suggest(name: str, known: Iterable[str]) -> str | None:
    """`did you mean ...?` where a known name is close to the given one."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]!r}?" if close else None
