"""What the plugin library shows to and asks of whoever loads it."""

from __future__ import annotations

import re
from pathlib import Path

from run_command import run_command

# Neither TensorRT, PyTorch nor CUDA, whose runtime is linked in.
SYSTEM = {
    "ld-linux-x86-64",
    "libc",
    "libdl",
    "libgcc_s",
    "libm",
    "libpthread",
    "librt",
    "libstdc++",
}


def test_it_exports_its_two_entry_points(plugin_library: Path) -> None:
    listing = run_command("nm", "-D", "--defined-only", plugin_library)
    symbols = {line.split()[-1] for line in listing.splitlines()}
    assert symbols == {"getCreators", "setLoggerFinder"}


def test_it_needs_no_library_but_those_of_the_system(plugin_library: Path) -> None:
    needed = re.findall(r"NEEDED.*\[(.+?)\.so", run_command("readelf", "-d", plugin_library))
    assert set(needed) <= SYSTEM
