"""The model that Triton's Python backend loads, driven as the backend drives it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from engine_models import needs_rtx, save_fused

import qkexport
from qkexport import BuildOptions
from qkexport.bundle import write_bundle
from qkexport.engine.device import Gpu

pytestmark = needs_rtx


class BackendTensor:
    """Of `triton_python_backend_utils`."""

    def __init__(self, name: str, tensor: torch.Tensor) -> None:
        self.name, self.tensor = name, tensor

    @staticmethod
    def from_dlpack(name: str, capsule: Any) -> BackendTensor:
        return BackendTensor(name, torch.utils.dlpack.from_dlpack(capsule))

    def to_dlpack(self) -> Any:
        return self.tensor.__dlpack__()


class Runner:
    """Doubles its input; notes the batches it was given."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.inputs = (SimpleNamespace(name="x"),)
        self.batches: list[int] = []
        self.closed = False

    def run(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        self.batches.append(inputs["x"].shape[0])
        return {"y": inputs["x"] * 2}

    def close(self) -> None:
        self.closed = True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("served")
    model = save_fused(root / "m.onnx")
    engines = []
    for target in ("sm_89", "sm_120"):
        engines.append(root / f"m.{target}.engine")
        qkexport.build(model, engines[-1], options=BuildOptions(targets=(target,)))
    return write_bundle(root / "bundle", engines).folder / "triton" / "m"


@pytest.fixture
def served(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as the backend imports it, on a machine with a Blackwell GPU."""
    utilities = SimpleNamespace(
        Tensor=BackendTensor,
        InferenceResponse=lambda output_tensors: SimpleNamespace(outputs=output_tensors),
        get_input_tensor_by_name=lambda request, name: request[name],
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", utilities)
    spec = importlib.util.spec_from_file_location("served_model", folder / "1" / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "TrtRunner", Runner)
    monkeypatch.setattr(module, "find_gpu", lambda: Gpu("a Blackwell GPU", "sm_120"))
    return module


def _model(served: ModuleType, folder: Path, max_batch_size: int = 8) -> Any:
    model = served.TritonPythonModel()
    model.initialize(
        {
            "model_repository": str(folder),
            "model_version": "1",
            "model_config": json.dumps({"max_batch_size": max_batch_size}),
        }
    )
    return model


def _requests(*sizes: int) -> list[dict[str, BackendTensor]]:
    return [{"x": BackendTensor("x", torch.randn(size, 7).bfloat16())} for size in sizes]


def _check(requests: list[dict[str, BackendTensor]], responses: list[Any]) -> None:
    for request, response in zip(requests, responses, strict=True):
        (output,) = response.outputs
        assert output.name == "y"
        torch.testing.assert_close(output.tensor, request["x"].tensor * 2, rtol=0, atol=0)


def test_the_engine_of_the_gpu_is_loaded(served: ModuleType, folder: Path) -> None:
    assert _model(served, folder).runner.path.name == "m.sm_120.engine"


def test_without_a_fitting_engine_the_runner_tells(
    served: ModuleType, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "find_gpu", lambda: None)
    assert _model(served, folder).runner.path.suffix == ".engine"


def test_gathered_requests_run_together_and_come_back_apart(
    served: ModuleType, folder: Path
) -> None:
    model = _model(served, folder)
    requests = _requests(1, 3, 2)
    _check(requests, model.execute(requests))
    assert model.runner.batches == [6]


def test_a_model_without_a_batch_runs_one_request_at_a_time(
    served: ModuleType, folder: Path
) -> None:
    model = _model(served, folder, max_batch_size=0)
    requests = _requests(1, 3)
    _check(requests, model.execute(requests))
    assert model.runner.batches == [1, 3]


def test_the_end_frees_the_engine(served: ModuleType, folder: Path) -> None:
    model = _model(served, folder)
    model.finalize()
    assert model.runner.closed
