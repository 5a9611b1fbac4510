"""Engines on a GPU: IO by name, dynamic shapes, profiles, graphs, and every refusal."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import torch
from engine_models import WIDTH, needs_rtx, save_fused
from fake_gpu import FakeCudart, FakeEngine, fake_bindings

import qkexport
from qkexport import BuildOptions
from qkexport.engine.device import Gpu
from qkexport.engine.options import parse_shapes
from qkexport.errors import (
    BackendUnavailableError,
    LoadError,
    UnsupportedModelError,
    UsageError,
)
from qkexport.manifest import manifest_path, read_manifest
from qkexport.run import open_runner
from qkexport.run import tensorrt as module
from qkexport.run.cuda_runtime import checked, load_cudart
from qkexport.run.tensorrt import TrtRunner, optimum_inputs

pytestmark = needs_rtx

PROFILES = (
    ((1, 1, WIDTH), (2, 59, WIDTH), (3, 97, WIDTH)),
    ((8, 1, WIDTH), (8, 1, WIDTH), (8, 1, WIDTH)),
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine")
    options = BuildOptions(targets=("sm_89",), profiles=parse_shapes(["x=1x1x32,2x59x32,3x97x32"]))
    qkexport.build(save_fused(folder / "m.onnx"), folder / "m.engine", options=options)
    return folder / "m.engine"


class Machine:
    """A machine with a fake GPU on which a real engine file is loaded as a fake engine."""

    def __init__(self, engine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = engine
        self.cudart = FakeCudart()
        self.engine = FakeEngine(self.cudart, PROFILES)
        version = read_manifest(manifest_path(engine)).version
        bindings = fake_bindings(version, self.engine)
        self.replace = monkeypatch.setattr
        self.replace(module, "find_gpu", lambda: Gpu("a fake GPU", "sm_89"))
        self.replace(module, "load_bindings", lambda flavour: bindings)
        self.replace(module, "load_cudart", lambda: self.cudart)

    def runner(self, *, cuda_graph: bool = False) -> TrtRunner:
        return TrtRunner(self.path, cuda_graph=cuda_graph)


@pytest.fixture
def machine(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    engine = tmp_path / "m.engine"
    shutil.copy(built, engine)
    shutil.copy(manifest_path(built), manifest_path(engine))
    return Machine(engine, monkeypatch)


def _x(batch_size: int, seqlen: int) -> torch.Tensor:
    return torch.randn(batch_size, seqlen, WIDTH).half()


def test_shapes_may_change_from_run_to_run(machine: Machine) -> None:
    with machine.runner() as runner:
        assert [info.name for info in runner.inputs] == ["x"]
        assert runner.outputs[0].shape == ("y_0", "y_1", WIDTH)
        for sizes in ((1, 1), (3, 97), (2, 59), (1, 97)):
            x = _x(*sizes)
            torch.testing.assert_close(runner.run({"x": x})["y"], x, rtol=0, atol=0)
    assert machine.cudart.memory == {}
    assert machine.cudart.calls[-1] == "cudaStreamDestroy"


def test_a_repeat_runs_once_more_without_copies(machine: Machine) -> None:
    with machine.runner() as runner:
        runner.run(optimum_inputs(runner.inputs, runner.manifest))
        copies = machine.cudart.calls.count("cudaMemcpyAsync")
        runner.repeat()
    assert machine.cudart.calls.count("execute") == 2
    assert machine.cudart.calls.count("cudaMemcpyAsync") == copies


def test_optimum_inputs_have_the_shapes_of_the_first_profile(machine: Machine) -> None:
    with machine.runner() as runner:
        inputs = optimum_inputs(runner.inputs, runner.manifest)
    assert {name: (x.shape, x.dtype) for name, x in inputs.items()} == {
        "x": ((2, 59, WIDTH), torch.float16)
    }


def test_memory_on_the_gpu_only_grows(machine: Machine) -> None:
    with machine.runner() as runner:
        for sizes in ((3, 97), (1, 1), (2, 59)):
            runner.run({"x": _x(*sizes)})
    assert machine.cudart.calls.count("cudaMalloc") == 2


def test_inputs_that_are_not_contiguous_are_read_in_their_own_order(machine: Machine) -> None:
    x = _x(59, 2).transpose(0, 1)
    with machine.runner() as runner:
        torch.testing.assert_close(runner.run({"x": x})["y"], x, rtol=0, atol=0)


def test_an_input_that_decides_over_shapes_stays_on_the_host(machine: Machine) -> None:
    machine.engine.on_host = "x"
    x = _x(2, 59)
    with machine.runner() as runner:
        torch.testing.assert_close(runner.run({"x": x})["y"], x, rtol=0, atol=0)
        assert machine.engine.context.addresses["x"] == x.data_ptr()
    assert machine.cudart.calls.count("cudaMemcpyAsync") == 1


def test_each_run_uses_a_profile_that_fits(machine: Machine) -> None:
    with machine.runner() as runner:
        for sizes in ((1, 1), (8, 1), (8, 1), (2, 59)):
            runner.run({"x": _x(*sizes)})
    assert machine.engine.context.profiles_set == [1, 0]


def test_shapes_that_fit_no_profile_are_refused_with_the_profiles(machine: Machine) -> None:
    with machine.runner() as runner, pytest.raises(UsageError, match=r"got x \[4, 97") as caught:
        runner.run({"x": _x(4, 97)})
    assert "[1, 1, 32] to [3, 97, 32]" in str(caught.value)


def test_empty_tensors_have_an_address(machine: Machine) -> None:
    machine.engine.profiles = (((0, 0, WIDTH), (1, 1, WIDTH), (3, 97, WIDTH)), PROFILES[1])
    with machine.runner() as runner:
        assert runner.run({"x": _x(0, 59)})["y"].shape == (0, 59, WIDTH)


def test_a_graph_is_recorded_in_the_second_run_and_replayed_from_then_on(
    machine: Machine,
) -> None:
    with machine.runner(cuda_graph=True) as runner:
        for _ in range(4):
            x = _x(2, 59)
            torch.testing.assert_close(runner.run({"x": x})["y"], x, rtol=0, atol=0)
    calls = machine.cudart.calls
    assert calls.count("execute") == 2
    assert calls.count("cudaGraphLaunch") == 3
    assert calls.count("cudaGraphExecDestroy") == calls.count("cudaGraphInstantiate") == 1


def test_other_shapes_need_another_graph(machine: Machine) -> None:
    with machine.runner(cuda_graph=True) as runner:
        for sizes in ((3, 97), (3, 97), (2, 59), (2, 59), (3, 97), (3, 97)):
            x = _x(*sizes)
            torch.testing.assert_close(runner.run({"x": x})["y"], x, rtol=0, atol=0)
    assert machine.cudart.calls.count("cudaGraphInstantiate") == 3
    assert machine.cudart.calls.count("cudaGraphExecDestroy") == 3


def test_inputs_are_checked_by_name_and_type(machine: Machine) -> None:
    with machine.runner() as runner:
        with pytest.raises(UsageError, match="no input of that name, got 'z'"):
            runner.run({"z": _x(1, 1)})
        with pytest.raises(UsageError, match=r"must be torch\.float16, got torch\.float32"):
            runner.run({"x": _x(1, 1).float()})


def test_an_engine_that_does_not_run_is_an_error(machine: Machine) -> None:
    machine.engine.failing = True
    with machine.runner() as runner, pytest.raises(UnsupportedModelError, match="must run"):
        runner.run({"x": _x(1, 1)})


def test_an_output_of_unknown_size_is_refused(machine: Machine) -> None:
    machine.engine.data_dependent = True
    with machine.runner() as runner, pytest.raises(UnsupportedModelError, match="known before"):
        runner.run({"x": _x(1, 1)})


def test_an_error_of_cuda_is_named(machine: Machine) -> None:
    machine.cudart.failing = "cudaMalloc"
    with pytest.raises(UnsupportedModelError, match="got cudaErrorMemoryAllocation"):
        machine.runner().run({"x": _x(1, 1)})


def test_without_a_gpu_nothing_is_loaded(machine: Machine) -> None:
    machine.replace(module, "find_gpu", lambda: None)
    with pytest.raises(BackendUnavailableError, match="needs an NVIDIA GPU"):
        machine.runner()


def test_an_engine_for_another_gpu_is_refused_before_tensorrt_sees_it(machine: Machine) -> None:
    machine.replace(module, "find_gpu", lambda: Gpu("another GPU", "sm_86"))
    machine.replace(module, "_deserialize", lambda runtime, path: pytest.fail("was loaded"))
    with pytest.raises(LoadError, match="must run on sm_89, got sm_86"):
        machine.runner()


def test_a_damaged_engine_is_refused_before_tensorrt_sees_it(machine: Machine) -> None:
    machine.path.write_bytes(machine.path.read_bytes() + b"\0")
    machine.replace(module, "_deserialize", lambda runtime, path: pytest.fail("was loaded"))
    with pytest.raises(LoadError, match="digest"):
        machine.runner()


def test_an_engine_that_tensorrt_refuses_is_an_error(machine: Machine) -> None:
    version = read_manifest(manifest_path(machine.path)).version
    machine.replace(module, "load_bindings", lambda flavour: fake_bindings(version, None))
    with pytest.raises(UnsupportedModelError, match="must be loaded by TensorRT"):
        machine.runner()


def test_a_backend_other_than_the_one_that_built_it_is_refused(machine: Machine) -> None:
    assert isinstance(open_runner(machine.path, "tensorrt-rtx"), TrtRunner)
    with pytest.raises(UsageError, match="must run on tensorrt-rtx, got tensorrt"):
        open_runner(machine.path, "tensorrt")


def test_cuda_python_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.runtime", None)
    with pytest.raises(BackendUnavailableError, match="needs cuda-python"):
        load_cudart()


def test_calls_without_a_value_give_none() -> None:
    assert checked((FakeCudart.Error.cudaSuccess,)) is None
