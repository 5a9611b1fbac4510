"""Memory that is free in the C library's heap goes back to the system."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable


def release_free_memory() -> None:
    """Returns free pages to the system, where the C library is glibc; does nothing elsewhere.

    A session that is opened leaves free what the parsed file took, a quarter of the weights or more
    in one measured model, and one that is closed leaves most of its weights: glibc keeps pages
    between blocks that are still used until it is asked.
    """
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@functools.cache
def _malloc_trim() -> Callable[[int], int] | None:
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # another C library; Windows takes no None
        return None
