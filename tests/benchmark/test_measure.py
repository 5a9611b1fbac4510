"""One model on one backend, measured in a process of its own and in this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from engine_models import WIDTH, needs_rtx, save_fused, save_native
from fake_gpu import FakeCudart, FakeEngine, fake_bindings
from onnx import TensorProto, helper

import qkexport
from qkexport import BuildOptions
from qkexport.benchmark import measure as module
from qkexport.benchmark import process
from qkexport.benchmark.measure import measure
from qkexport.benchmark.process import ask
from qkexport.engine.device import Gpu
from qkexport.errors import LoadError, UnsupportedModelError
from qkexport.manifest import read_manifest
from qkexport.run import cuda_runtime
from qkexport.run import tensorrt as runner_module
from qkexport.run.ort_runner import OrtRunner


def _qkv(seqlen: int) -> dict[str, torch.Tensor]:
    return {name: torch.randn(1, 2, seqlen, 16) for name in "qkv"}


@pytest.mark.parametrize("backend", ["ort-stock", "ort"])
def test_onnx_runtime_is_timed_with_its_default_arena(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arenas: list[bool] = []

    class Watched(OrtRunner):
        def run(self, inputs: Any) -> dict[str, torch.Tensor]:
            arenas.append(self._session.get_session_options().enable_cpu_mem_arena)
            return super().run(inputs)

    monkeypatch.setattr(module, "OrtRunner", Watched)
    model = save_native(tmp_path / "m.onnx", dtype="float32")
    measure(str(model), backend, _qkv(5), runs=1, warm_up=0)
    assert arenas == [True, True]


def test_first_run_and_timed_runs_are_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter(range(100))
    monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    model = save_native(tmp_path / "m.onnx", dtype="float32")
    measurement = measure(str(model), "ort-stock", _qkv(59), runs=7, warm_up=2)
    # every look at the clock is a second later than the one before
    assert (measurement.load_seconds, measurement.first_seconds) == (1, 1)
    assert (measurement.latency.median, measurement.latency.runs) == (1, 7)
    assert measurement.device_bytes is None


class Product(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def _save_product(path: Path, width: int) -> Path:
    """x[1, width] times a square matrix, float32."""
    weight = np.ones((width, width), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, width])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    opsets = [helper.make_opsetid("", 20)]
    onnx.save_model(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


@pytest.mark.parametrize("backend", ["ort-stock", "torch"])
def test_memory_is_what_the_model_adds_to_the_process(tmp_path: Path, backend: str) -> None:
    width = 3000  # 36 MB
    request: dict[str, Any] = {"task": "run", "backend": backend, "runs": 1, "warm_up": 0}
    request |= {"inputs": str(tmp_path / "x.pt"), "threads": 1, "allow_pickle": False}
    torch.save({"x": torch.ones(1, width)}, tmp_path / "x.pt")
    if backend == "torch":
        source = tmp_path / "m.pt2"
        program = torch.export.export(Product(width), (torch.ones(1, width),))
        torch.export.save(program, source)
    else:
        source = _save_product(tmp_path / "m.onnx", width)
    answer = ask({**request, "source": str(source)})
    assert 36e6 < answer["memory_bytes"] < 36e6 * 3.5
    assert answer["peak_bytes"] >= answer["memory_bytes"]


def test_an_error_of_the_process_is_raised_here(tmp_path: Path) -> None:
    draw: dict[str, Any] = {"task": "draw", "source": str(tmp_path / "m.pt"), "others": []}
    draw |= {"given": None, "specs": [], "seed": 0, "inputs": "", "threads": 1}
    (tmp_path / "m.pt").write_bytes(b"")
    with pytest.raises(LoadError, match="got an empty file") as caught:
        ask({**draw, "allow_pickle": False})
    assert caught.value.hint


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.abort()", "got SIGABRT"),
        ("raise SystemExit('no room')", "got exit code 1: no room"),
        ("print('{}', file=__import__('sys').stderr)", "got exit code 0: {}"),
    ],
)
def test_a_process_that_dies_is_an_error_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    monkeypatch.setattr(process, "_COMMAND", (sys.executable, "-c", code))
    with pytest.raises(UnsupportedModelError, match=said):
        ask({})


def test_what_libraries_print_is_no_answer(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "qkexport.benchmark"],
        input='{"task": "draw", "threads": 1}',
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith('{"error": {"type": "", "message": "KeyError')


@needs_rtx
def test_an_engine_counts_the_memory_of_the_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tmp_path / "m.engine"
    qkexport.build(
        save_fused(tmp_path / "m.onnx"), engine, options=BuildOptions(targets=("sm_89",))
    )
    cudart = FakeCudart()
    low, best, high = read_manifest(tmp_path / "m.engine.json").profiles[0]["x"]
    fake = FakeEngine(cudart, [(low, best, high)])
    bindings = fake_bindings(read_manifest(tmp_path / "m.engine.json").version, fake)
    monkeypatch.setattr(runner_module, "find_gpu", lambda: Gpu("a fake GPU", "sm_89"))
    monkeypatch.setattr(module, "find_gpu", lambda: Gpu("a fake GPU", "sm_89"))
    monkeypatch.setattr(runner_module, "load_bindings", lambda flavour: bindings)
    monkeypatch.setattr(runner_module, "load_cudart", lambda: cudart)
    monkeypatch.setattr(cuda_runtime, "load_cudart", lambda: cudart)
    x = torch.randn(2, 59, WIDTH).half()
    measurement = measure(str(engine), "tensorrt-rtx", {"x": x}, runs=3, warm_up=1)
    assert measurement.device_bytes == 2 * x.nbytes  # input and output
    assert "times include copies to and from the GPU" in measurement.notes
    assert cudart.calls.count("execute") == 5
