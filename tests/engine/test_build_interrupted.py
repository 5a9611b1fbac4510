"""Builds that are stopped, killed, or end the process: what is left behind is whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from engine_models import needs_rtx, save_deep, save_fused

import qkexport
from qkexport import BuildOptions
from qkexport.engine.verify import verify_files

pytestmark = needs_rtx

# TensorRT compiles this for seconds in a single step.
DEPTH: Final = 80


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Programs started in the background may inherit an ignored SIGINT, and hand it on."""
    inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, inherited)


@pytest.fixture(scope="module")
def slow_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_deep(tmp_path_factory.mktemp("deep") / "deep.onnx", depth=DEPTH)


@contextmanager
def _compiling(model: Path, output: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A build that has come to the step in which TensorRT compiles."""
    command = [sys.executable, "-m", "qkexport", "build", str(model), "-o", str(output)]
    command += ["--target", "sm_89", "-v", *arguments]
    environment = {**os.environ, "TMPDIR": str(output.parent)}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "Optimizing graph" in line:
                break
        try:
            yield process
        finally:
            process.kill()


def test_ctrl_c_ends_a_build_soon_and_leaves_nothing(tmp_path: Path, slow_model: Path) -> None:
    output = tmp_path / "deep.engine"
    with _compiling(slow_model, output) as process:
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=60)
        waited = time.monotonic() - start
    assert process.returncode == 130, log
    assert waited < 15
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_twice_ends_the_process_at_once(tmp_path: Path, slow_model: Path) -> None:
    output = tmp_path / "deep.engine"
    with _compiling(slow_model, output) as process:
        assert process.stderr is not None
        process.send_signal(signal.SIGINT)
        for line in process.stderr:
            if "Ctrl-C again" in line:
                break
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=60)
    # 130 where the first one had already stopped the build when the second came
    assert process.returncode in (-signal.SIGINT, 130)
    assert list(tmp_path.glob("*.engine*")) == []


def test_a_build_that_is_cancelled_at_a_step_stops_there(tmp_path: Path) -> None:
    phases: list[str] = []

    def stop(share: float, phase: str) -> None:
        phases.append(phase)
        if phase == "Optimizing graph":
            signal.raise_signal(signal.SIGINT)

    model = save_fused(tmp_path / "model.onnx")
    with pytest.raises(KeyboardInterrupt):
        qkexport.build(
            model, tmp_path / "m.engine", options=BuildOptions(targets=("sm_89",)), progress=stop
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx"]
    # TensorRT is usable afterwards.
    options = BuildOptions(targets=("sm_89",))
    assert qkexport.build(model, tmp_path / "m.engine", options=options)


def test_kill_9_leaves_the_old_engine_and_no_cache_entry(tmp_path: Path, slow_model: Path) -> None:
    output, cache = tmp_path / "deep.engine", tmp_path / "cache"
    model = save_fused(tmp_path / "model.onnx")
    qkexport.build(model, output, options=BuildOptions(targets=("sm_89",)), cache=cache)
    before = output.read_bytes()
    entries = sorted(cache.rglob("*"))
    with _compiling(slow_model, output, "--cache", str(cache)) as process:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert output.read_bytes() == before
    assert verify_files(output)
    assert sorted(cache.rglob("*")) == entries


FULL_DISK: Final = """
import resource, sys
import qkexport
from qkexport.errors import BuildError

model, output = sys.argv[1:]
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    qkexport.build(model, output, options=qkexport.BuildOptions(targets=("sm_89",)))
except BuildError as error:
    print(error)
"""


def test_a_disk_that_is_full_leaves_the_old_engine_and_says_so(tmp_path: Path) -> None:
    model, output = save_fused(tmp_path / "model.onnx"), tmp_path / "model.engine"
    output.write_bytes(b"older")
    command = [sys.executable, "-c", FULL_DISK, str(model), str(output)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == (
        "Engine must be written whole, got File too large after 0 bytes.\n"
        f"Hint: make room in {tmp_path}, or build into another folder.\n"
    )
    assert output.read_bytes() == b"older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.engine", "model.onnx"]


@pytest.mark.nightly
def test_kill_9_at_any_moment_leaves_a_whole_engine_or_none(tmp_path: Path) -> None:
    model = save_deep(tmp_path / "deep.onnx", depth=8)
    output, cache = tmp_path / "deep.engine", tmp_path / "cache"
    command = [sys.executable, "-m", "qkexport", "build", str(model), "-o", str(output)]
    command += ["--target", "sm_89", "--cache", str(cache), "-q"]
    for attempt in range(12):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            time.sleep(0.8 + 0.15 * attempt)
            process.kill()
        if output.exists() and (tmp_path / "deep.engine.json").exists():
            verify_files(output)
        for entry in cache.glob("*/*/model.engine"):
            verify_files(entry)
    subprocess.run(command, check=True)
    assert verify_files(output)


PLUGIN_IN_RTX: Final = """
import sys
import tensorrt_rtx as trt

class Creator(trt.IPluginCreatorV3One):
    def __init__(self):
        trt.IPluginCreatorV3One.__init__(self)
        self.name, self.plugin_namespace, self.plugin_version = "QKNormAttention", "", "1"
        self.field_names = trt.PluginFieldCollection([])

    def create_plugin(self, name, fields, phase):
        return Plugin()

class Plugin(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):
    def __init__(self):
        for base in type(self).__mro__[1:5]:
            base.__init__(self)
        self.plugin_name, self.plugin_namespace, self.plugin_version = "QKNormAttention", "", "1"
        self.num_outputs = 1

    def get_capability_interface(self, kind):
        return self

logger = trt.Logger()
builder = trt.Builder(logger)
creator = Creator()
assert trt.get_plugin_registry().register_creator(creator, "")
network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
print("parsing", flush=True)
trt.OnnxParser(network, logger).parse_from_file(sys.argv[1])
print("parsed", flush=True)
"""


def test_tensorrt_rtx_ends_the_process_when_it_is_given_a_plugin_node(tmp_path: Path) -> None:
    model = save_fused(tmp_path / "model.onnx")
    done = subprocess.run(
        [sys.executable, "-c", PLUGIN_IN_RTX, str(model)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "parsing\n"
    assert done.returncode == -signal.SIGABRT, done.stderr
