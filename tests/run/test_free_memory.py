"""Free pages of the heap go back to the system, and used ones stay."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
from pathlib import Path

import pytest

from qkexport.run import free_memory
from qkexport.run.free_memory import release_free_memory, returning_freed_blocks

_STATUS = Path("/proc/self/status")
GLIBC = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")


def _resident() -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) * 1024


@GLIBC
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


# In a process of its own: elsewhere blocks may come from what the heap has free already.
_READING = """
import re
from pathlib import Path
from qkexport.run.free_memory import returning_freed_blocks

def resident():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) * 1024

# a larger block that is freed raises the size from which glibc maps blocks on their own
learned = bytearray(24 * 2**20)
del learned
with returning_freed_blocks():
    blocks = [bytearray(8 * 2**20) for _ in range(20)]
    kept = blocks[::4]
    before = resident()
    del blocks
    print(before - resident())
"""


@GLIBC
def test_blocks_freed_while_a_model_is_read_leave_no_gaps() -> None:
    command = [sys.executable, "-c", _READING]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) > 100 * 2**20  # 15 of 20 blocks of 8 MiB


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(free_memory, "_glibc", lambda: None)
    release_free_memory()
    with returning_freed_blocks():
        pass
