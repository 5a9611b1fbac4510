"""What the plugin library shows to and asks of whoever loads it."""

from __future__ import annotations

import subprocess

import pytest

from qkexport.native import find_library
from qkexport.run.plugin_attention import EMULATED_PLUGIN_LIBRARY, PLUGIN_LIBRARY


@pytest.mark.parametrize("name", [EMULATED_PLUGIN_LIBRARY, PLUGIN_LIBRARY])
def test_a_plugin_exports_its_two_entry_points_and_needs_no_runtime(name: str) -> None:
    path = find_library(name)
    if path is None:
        pytest.skip(f"not built: {name}")

    def listed(*command: str) -> list[str]:
        done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    symbols = {line.split()[-1] for line in listed("nm", "-D", "--defined-only")}
    assert symbols == {"getCreators", "setLoggerFinder"}
    needed = " ".join(line for line in listed("readelf", "-d") if "NEEDED" in line)
    assert "libnvinfer" not in needed
    assert "torch" not in needed
