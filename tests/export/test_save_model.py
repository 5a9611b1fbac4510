"""Saving: nothing half-written, nothing held twice, loadable from anywhere."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import numpy_helper

from qkexport.errors import UsageError
from qkexport.export import save_model


def _model(**weights: ir.TensorProtocol) -> ir.Model:
    """A graph that returns its weights."""
    values = []
    for name, tensor in weights.items():
        tensor.name = name
        values.append(
            ir.Value(
                name=name,
                type=ir.TensorType(tensor.dtype),
                shape=tensor.shape,  # type: ignore[arg-type]
                const_value=tensor,
            )
        )
    nodes = [ir.node("Identity", [value]) for value in values]
    outputs = [node.outputs[0] for node in nodes]
    for value, output in zip(values, outputs, strict=True):
        output.name, output.type, output.shape = f"{value.name}_out", value.type, value.shape
    graph = ir.Graph(
        [], outputs, nodes=nodes, initializers=values, opset_imports={"": 21}, name="weights"
    )
    return ir.Model(graph, ir_version=10, producer_name="a test")


def _array(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _weights(path: Path) -> dict[str, np.ndarray]:
    """What any reader of ONNX files finds, from another working directory."""
    previous = Path.cwd()
    try:
        os.chdir("/")
        proto = onnx.load(path)
    finally:
        os.chdir(previous)
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in proto.graph.initializer}


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_small_model_is_one_file_and_keeps_every_type(tmp_path: Path) -> None:
    x = _array(0, 97, 59)
    model = _model(
        single=ir.tensor(x),
        half=ir.tensor(x.astype(np.float16)),
        bfloat=ir.tensor(x.astype(ml_dtypes.bfloat16)),
        integers=ir.tensor(np.arange(5000)),
        quads=ir.tensor((np.arange(10000) % 7).astype(ml_dtypes.uint4)),
        scalar=ir.tensor(np.float32(3.5)),
        empty=ir.tensor(np.empty((0, 5), np.float32)),
        flags=ir.tensor(x > 0),
        texts=ir.StringTensor([b"a", b"bc"], shape=ir.Shape([2])),
    )
    path = save_model(model, tmp_path / "model.onnx")
    assert _names(tmp_path) == ["model.onnx"]
    onnx.checker.check_model(str(path), full_check=True)
    expected = {t.name: numpy_helper.to_array(t) for t in ir.to_proto(model).graph.initializer}
    found = _weights(path)
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype, name
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert onnx.load(path).producer_name == "a test"


def test_weights_beyond_the_limit_go_next_to_the_model(tmp_path: Path) -> None:
    weight = _array(1, 100, 100)
    path = save_model(
        _model(weight=ir.tensor(weight)), tmp_path / "model.onnx", single_file_limit=39_999
    )
    assert _names(tmp_path) == ["model.onnx", "model.onnx.data"]
    assert path.stat().st_size < 1000
    np.testing.assert_array_equal(_weights(path)["weight"], weight)


def test_weights_at_the_limit_stay_inside(tmp_path: Path) -> None:
    save_model(
        _model(weight=ir.tensor(_array(1, 100, 100))),
        tmp_path / "model.onnx",
        single_file_limit=40_000,
    )
    assert _names(tmp_path) == ["model.onnx"]


def test_a_model_with_external_data_keeps_them_external(tmp_path: Path) -> None:
    weight = _array(2, 64, 64)
    first = tmp_path / "first"
    second = tmp_path / "second"
    first.mkdir()
    second.mkdir()
    save_model(_model(weight=ir.tensor(weight)), first / "a.onnx", single_file_limit=0)
    path = save_model(ir.load(first / "a.onnx"), second / "b.onnx")
    assert _names(second) == ["b.onnx", "b.onnx.data"]
    np.testing.assert_array_equal(_weights(path)["weight"], weight)


def test_a_model_can_be_saved_over_the_file_its_weights_are_read_from(tmp_path: Path) -> None:
    weight = _array(3, 64, 64)
    path = tmp_path / "model.onnx"
    save_model(_model(weight=ir.tensor(weight)), path, single_file_limit=0)
    for name in ("model.onnx.1.data", "model.onnx.data"):
        save_model(ir.load(path), path)
        assert _names(tmp_path) == ["model.onnx", name]
        np.testing.assert_array_equal(_weights(path)["weight"], weight)


def test_a_replaced_model_takes_its_data_file_along(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    save_model(_model(weight=ir.tensor(_array(4, 64, 64))), path, single_file_limit=0)
    (tmp_path / "other.onnx.data").write_bytes(b"somebody else's")
    save_model(_model(weight=ir.tensor(_array(5, 64, 64))), path)
    assert _names(tmp_path) == ["model.onnx", "other.onnx.data"]


class _FailingTensor(ir.LazyTensor):
    """Weights that cannot be read."""

    def __init__(self) -> None:
        super().__init__(self._fail, dtype=ir.DataType.FLOAT, shape=ir.Shape([64, 64]))

    def _fail(self) -> ir.TensorProtocol:
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("limit", [0, 10**9], ids=["external", "single file"])
def test_a_failed_save_leaves_what_was_there(tmp_path: Path, limit: int) -> None:
    path, weight = tmp_path / "model.onnx", _array(6, 64, 64)
    save_model(_model(weight=ir.tensor(weight)), path, single_file_limit=limit)
    before = _names(tmp_path)
    broken = _model(fine=ir.tensor(weight), broken=_FailingTensor())
    with pytest.raises(OSError, match="No space left"):
        save_model(broken, path, single_file_limit=limit)
    assert _names(tmp_path) == before
    np.testing.assert_array_equal(_weights(path)["weight"], weight)


class _WaitingTensor(ir.LazyTensor):
    """Weights that never come."""

    def __init__(self, sign: Path) -> None:
        self.sign = sign
        super().__init__(self._wait, dtype=ir.DataType.FLOAT, shape=ir.Shape([64, 64]))

    def _wait(self) -> ir.TensorProtocol:
        self.sign.touch()
        signal.pause()
        raise AssertionError


@pytest.mark.parametrize("limit", [0, 10**9], ids=["external", "single file"])
def test_a_killed_save_leaves_what_was_there(tmp_path: Path, limit: int) -> None:
    path, weight, sign = tmp_path / "model.onnx", _array(7, 64, 64), tmp_path / "sign"
    save_model(_model(weight=ir.tensor(weight)), path, single_file_limit=limit)
    child = os.fork()
    if not child:
        model = _model(fine=ir.tensor(weight + 1), never=_WaitingTensor(sign))
        save_model(model, path, single_file_limit=limit)
        os._exit(0)
    while not sign.exists():
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    np.testing.assert_array_equal(_weights(path)["weight"], weight)


def test_the_model_stays_as_it_was(tmp_path: Path) -> None:
    tensor = ir.tensor(_array(8, 64, 64))
    model = _model(weight=tensor)
    for limit in (0, 10**9):
        save_model(model, tmp_path / "model.onnx", single_file_limit=limit)
        assert model.graph.initializers["weight"].const_value is tensor


def test_files_have_the_permissions_of_any_new_file(tmp_path: Path) -> None:
    path = save_model(_model(weight=ir.tensor(_array(9, 64))), tmp_path / "model.onnx")
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="existing folder"):
        save_model(_model(weight=ir.tensor(_array(10, 3))), tmp_path / "none" / "model.onnx")


_MEASURE_PEAK = """
import resource, sys
import numpy as np, onnx_ir as ir
from pathlib import Path
from qkexport.export import save_model

weight = ir.tensor(np.ones((64, 1024, 1024), np.float32), name="weight")
value = ir.Value(name="weight", type=ir.TensorType(weight.dtype), shape=weight.shape,
                 const_value=weight)
graph = ir.Graph([], [value], nodes=[], initializers=[value], opset_imports={"": 21}, name="g")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
save_model(ir.Model(graph, ir_version=10), Path(sys.argv[1]), single_file_limit=int(sys.argv[2]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.parametrize("limit", [0, 2**30], ids=["external", "single file"])
def test_weights_are_not_held_a_second_time(tmp_path: Path, limit: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _MEASURE_PEAK, str(tmp_path / "model.onnx"), str(limit)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout) < 32 * 1024, "KiB beyond 256 MiB of weights"
