"""The plugin in NVIDIA's own registries, those that work without a GPU."""

from __future__ import annotations

import dataclasses
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
from qkexport.run.plugin_attention import PLUGIN_LIBRARY
from qkexport.spec import AttentionSpec

PROGRAM = Path(__file__).with_name("create_in_registry.py")
PARSER = Path(__file__).with_name("parse_in_rtx.py")
# Lean is large: once is enough.
RUNTIMES = (("lean", "11.4.0.106"), ("dispatch", "11.4.0.106"), ("dispatch", "10.16.1.11"))
REGISTERING = "libqkexport_trt_register.so"


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


def test_tensorrt_rtx_creates_it_in_the_build_phase(plugin_library: Path) -> None:
    if find_spec("tensorrt_rtx") is None:
        pytest.skip("tensorrt-rtx is not installed")
    check(*create("tensorrt_rtx", "BUILD", str(plugin_library)))


@pytest.mark.parametrize("qk_norm", ["rms", "rmsnorm"])
def test_the_onnx_parser_of_tensorrt_rtx_creates_it_from_a_node(
    plugin_library: Path, qk_norm: str, tmp_path: Path
) -> None:
    if find_spec("tensorrt_rtx") is None:
        pytest.skip("tensorrt-rtx is not installed")
    inputs = {name: torch.zeros(1, 3, 32).half() for name in ("query", "key", "value")}
    spec = AttentionSpec(num_heads=2, num_kv_heads=2, scale=0.25)
    model = attention_model(spec, inputs, packed=True, attributes={"qk_norm": qk_norm})
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    done = subprocess.run(
        [sys.executable, str(PARSER), str(plugin_library), str(tmp_path / "model.onnx")],
        capture_output=True,
        text=True,
        timeout=120,
    )
    refused = "attribute qk_norm is not a known value, got 'rmsnorm'" in done.stdout + done.stderr
    assert refused == (qk_norm == "rmsnorm")
    # A plugin that was created ends the process: this TensorRT runs none.
    assert done.returncode == (0 if refused else -signal.SIGABRT)


@dataclasses.dataclass(frozen=True)
class Runtime:
    """A runtime of TensorRT in a folder.

    Attributes:
        module: Its Python module.
        version: Its version.
        folder: Where Python finds the module.
    """

    module: str
    version: str
    folder: Path


@pytest.fixture(scope="module", params=RUNTIMES, ids="-".join)
def runtime(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Runtime:
    """Each small runtime; skips where the package index lacks it."""
    name, version = request.param
    folder = tmp_path_factory.mktemp(name)
    for part in ("bindings", "libs"):
        unpack_wheel(f"tensorrt-{name}-cu13-{part}=={version}", folder)
    return Runtime(f"tensorrt_{name}_bindings", version, folder)


def test_small_runtimes_create_it_in_the_runtime_phase(
    plugin_library: Path, runtime: Runtime
) -> None:
    found, log = create(runtime.module, "RUNTIME", str(plugin_library), str(runtime.folder))
    assert found["version"] == runtime.version
    check(found, log)


@pytest.fixture
def registering_library(plugin_library: Path, tmp_path: Path) -> Path:
    """The library that registers, with a plugin library beside it."""
    registering = find_library(REGISTERING)
    if registering is None:
        pytest.skip(f"not built: {REGISTERING}")
    shutil.copy(plugin_library, tmp_path / PLUGIN_LIBRARY)
    return Path(shutil.copy(registering, tmp_path))


def test_a_program_that_only_loads_libraries_gets_it_too(
    registering_library: Path, runtime: Runtime
) -> None:
    check(*create(runtime.module, "RUNTIME", str(registering_library), str(runtime.folder)))


def test_without_a_tensorrt_the_registering_library_says_so(registering_library: Path) -> None:
    program = f"import ctypes; ctypes.CDLL({str(registering_library)!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    assert "needs a TensorRT in the process, got none" in done.stderr
