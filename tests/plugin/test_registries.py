"""The plugin in NVIDIA's own registries, those that work without a GPU."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from ort.attention_session import attention_model
from tensorrt_stubs import unpack_wheel

from qkexport.native import find_library
from qkexport.run.plugin_attention import EMULATED_PLUGIN_LIBRARY, PLUGIN_LIBRARY
from qkexport.spec import AttentionSpec

PROGRAM = Path(__file__).with_name("create_in_registry.py")
PARSER = Path(__file__).with_name("parse_in_rtx.py")
# Lean is large: once is enough.
RUNTIMES = (("lean", "11.4.0.106"), ("dispatch", "11.4.0.106"), ("dispatch", "10.16.1.11"))
REGISTERING = "libqkexport_trt_register.so"


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


@pytest.mark.parametrize("qk_norm", ["rms", "rmsnorm"])
def test_the_onnx_parser_of_tensorrt_rtx_creates_it_from_a_node(
    qk_norm: str, tmp_path: Path
) -> None:
    if find_spec("tensorrt_rtx") is None:
        pytest.skip("tensorrt-rtx is not installed")
    inputs = {name: torch.zeros(1, 3, 32).half() for name in ("query", "key", "value")}
    spec = AttentionSpec(num_heads=2, num_kv_heads=2, scale=0.25)
    model = attention_model(spec, inputs, packed=True, attributes={"qk_norm": qk_norm})
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    done = subprocess.run(
        [sys.executable, str(PARSER), str(libraries()[0]), str(tmp_path / "model.onnx")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    refused = "attribute qk_norm is not a known value, got 'rmsnorm'" in done.stdout + done.stderr
    assert refused == (qk_norm == "rmsnorm")
    # A plugin that was created ends the process: this TensorRT runs none.
    assert done.returncode == (0 if refused else -signal.SIGABRT)


def unpack_runtime(name: str, version: str, folder: Path) -> str:
    """The module of a runtime of TensorRT, in a folder."""
    for part in ("bindings", "libs"):
        unpack_wheel(f"tensorrt-{name}-cu13-{part}=={version}", folder)
    return f"tensorrt_{name}_bindings"


@pytest.mark.parametrize(("name", "version"), RUNTIMES)
def test_small_runtimes_create_it_in_the_runtime_phase(
    name: str, version: str, tmp_path: Path
) -> None:
    module = unpack_runtime(name, version, tmp_path)
    for library in libraries():
        found, log = create(module, "RUNTIME", str(library), str(tmp_path))
        assert found["version"] == version
        check(found, log)


def with_neighbour(folder: Path) -> Path:
    """The library that registers, with a plugin library beside it."""
    registering = find_library(REGISTERING)
    if registering is None:
        pytest.skip(f"not built: {REGISTERING}")
    shutil.copy(libraries()[-1], folder / PLUGIN_LIBRARY)
    return Path(shutil.copy(registering, folder))


@pytest.mark.parametrize(("name", "version"), RUNTIMES)
def test_a_program_that_only_loads_libraries_gets_it_too(
    name: str, version: str, tmp_path: Path
) -> None:
    module = unpack_runtime(name, version, tmp_path)
    registering = with_neighbour(tmp_path)
    check(*create(module, "RUNTIME", str(registering), str(tmp_path)))


def test_without_a_tensorrt_the_registering_library_says_so(tmp_path: Path) -> None:
    registering = with_neighbour(tmp_path)
    program = f"import ctypes; ctypes.CDLL({str(registering)!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    assert "needs a TensorRT in the process, got none" in done.stderr
