"""Memory that is free in the C library's heap goes back to the system."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Iterator
from typing import Final

# Of <malloc.h>, and what glibc itself arrives at once a block of 32 MB was freed.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_LARGEST_MMAP_THRESHOLD: Final = 32 * 2**20
_WHILE_LOADING: Final = 2**20


def release_free_memory() -> None:
    """Returns free pages to the system, where the C library is glibc; does nothing elsewhere.

    A session that is closed leaves most of its weights in the heap: glibc keeps pages between
    blocks that are still used until it is asked.
    """
    libc = _glibc()
    if libc is not None:
        libc.malloc_trim(0)


@contextlib.contextmanager
def returning_freed_blocks() -> Iterator[None]:
    """Blocks of a megabyte and more go back to the system when they are freed, not into the heap.

    While a model is read, each weight of the parsed file is freed when it has been copied; in the
    heap they would leave gaps, 40 % of the weights in one measured model.
    """
    libc = _glibc()
    if libc is None:
        yield
        return
    libc.mallopt(_MMAP_THRESHOLD, _WHILE_LOADING)
    try:
        yield
    finally:
        libc.mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
        libc.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_MMAP_THRESHOLD)
        libc.malloc_trim(0)


@functools.cache
def _glibc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL(None)
    except (OSError, TypeError):  # Windows takes no None
        return None
    known = hasattr(libc, "malloc_trim") and hasattr(libc, "mallopt")
    return libc if known else None
