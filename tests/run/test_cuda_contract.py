"""The calls that running an engine makes exist in NVIDIA's cuda-python, with those arguments."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tensorrt_stubs import REPOSITORY, unpack_wheel

RUN: Final = REPOSITORY / "qkexport" / "run"
SOURCES: Final = (RUN / "cuda_runtime.py", RUN / "cuda_graph.py", RUN / "tensorrt.py")


def _calls() -> dict[str, int]:
    """Functions of the CUDA runtime that we call, with the number of their arguments."""
    nodes = [node for path in SOURCES for node in ast.walk(ast.parse(path.read_text()))]
    return {
        node.func.attr: sum(2 if isinstance(x, ast.Starred) else 1 for x in node.args)
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr.startswith("cuda")
    }


PROBE: Final = """
import inspect, json, sys
from cuda.bindings import runtime
calls = json.loads(sys.argv[1])
wrong = [
    name for name, count in calls.items()
    if len(inspect.signature(getattr(runtime, name)).parameters) != count
]
kinds = runtime.cudaMemcpyKind
kinds.cudaMemcpyHostToDevice, kinds.cudaMemcpyDeviceToHost
runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
int(runtime.cudaStream_t(0))
error, value = runtime.cudaMalloc(1)
print(json.dumps({"wrong": wrong, "error": int(error), "name": error.name}))
"""


@pytest.fixture(scope="module")
def bindings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    for requirement in ("cuda-bindings==13.5.0", "cuda-pathfinder==1.9.1"):
        unpack_wheel(requirement, folder)
    return folder


def test_every_call_has_the_number_of_arguments_that_cuda_takes(bindings: Path) -> None:
    calls = _calls()
    assert {"cudaMalloc", "cudaMemcpyAsync", "cudaGraphLaunch"} < set(calls)
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(calls)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(bindings)},
        timeout=120,
    )
    answer = json.loads(done.stdout)
    assert answer["wrong"] == []
    # A call that fails answers with an error and None, as the fake of the other tests does.
    assert (answer["error"] == 0) is (answer["name"] == "cudaSuccess")
