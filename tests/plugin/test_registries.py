"""The plugin in NVIDIA's own registries, those that work without a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tensorrt_stubs import unpack_wheel

from qkexport.native import find_library
from qkexport.run.plugin_attention import EMULATED_PLUGIN_LIBRARY, PLUGIN_LIBRARY
from qkexport.spec import AttentionSpec

PROGRAM = Path(__file__).with_name("create_in_registry.py")
LEAN = ("tensorrt-lean-cu13-bindings==11.4.0.106", "tensorrt-lean-cu13-libs==11.4.0.106")


def libraries() -> list[Path]:
    """The emulated plugin always, the one that nvcc built where there is one."""
    found = (find_library(name) for name in (EMULATED_PLUGIN_LIBRARY, PLUGIN_LIBRARY))
    return [path for path in found if path is not None]


def create(*arguments: str) -> tuple[dict[str, Any], str]:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr  # a clean exit of the interpreter, too
    *log, found = done.stdout.splitlines()  # loggers write to both streams
    return json.loads(found), "\n".join((*log, done.stderr))


def check(found: dict[str, Any], log: str) -> None:
    written = AttentionSpec(num_heads=1, num_kv_heads=1, scale=1.0).to_attributes()
    assert found["fields"] == list(written)
    assert found["created"] == [True, True, True]
    assert found["refused"]
    assert "num_heads must be a multiple of num_kv_heads, got 3 and 2" in log
    assert not found["other version"]


def test_tensorrt_rtx_creates_it_in_the_build_phase() -> None:
    if find_spec("tensorrt_rtx") is None:
        pytest.skip("tensorrt-rtx is not installed")
    for library in libraries():
        check(*create("tensorrt_rtx", "BUILD", str(library)))


def test_the_lean_runtime_creates_it_in_the_runtime_phase(tmp_path: Path) -> None:
    for requirement in LEAN:
        unpack_wheel(requirement, tmp_path)
    for library in libraries():
        found, log = create("tensorrt_lean_bindings", "RUNTIME", str(library), str(tmp_path))
        assert found["version"].startswith("11.")
        check(found, log)
