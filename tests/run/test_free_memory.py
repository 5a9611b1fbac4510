"""Free pages of the heap go back to the system, and used ones stay."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path

import pytest

from qkexport.run import free_memory
from qkexport.run.free_memory import release_free_memory

_STATUS = Path("/proc/self/status")


def _resident() -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
def test_pages_between_used_blocks_are_returned() -> None:
    # too small to be mapped on their own; every hundredth stays and pins the heap's end
    blocks = [bytearray(64 * 1024) for _ in range(2000)]
    kept = blocks[::100]
    kept[0][:3] = b"abc"
    del blocks
    gc.collect()
    before = _resident()
    release_free_memory()
    assert before - _resident() > 50 * 2**20
    assert kept[0][:3] == b"abc"


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_memory, "_malloc_trim", lambda: None)
    release_free_memory()
