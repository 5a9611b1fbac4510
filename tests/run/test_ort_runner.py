"""ONNX Runtime behind the runner's interface."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper

from qkexport.errors import UnsupportedModelError, UsageError
from qkexport.run import open_runner
from qkexport.run.ort_runner import EMULATED, OrtRunner

BFLOAT16 = TensorProto.BFLOAT16


def _save(path: Path, nodes: list[onnx.NodeProto], dtype: int, **values: torch.Tensor) -> Path:
    """A model from x `[rows, 31]` to y of the same type."""
    initializers = [
        helper.make_tensor(name, TensorProto.FLOAT, value.shape, value.flatten().tolist())
        for name, value in values.items()
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", dtype, ["rows", 31])],
        [helper.make_tensor_value_info("y", dtype, ["rows", 31])],
        initializers,
    )
    opset = [helper.make_opsetid("", 23)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=10)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def _double(path: Path, dtype: int = TensorProto.FLOAT) -> Path:
    return _save(path, [helper.make_node("Add", ["x", "x"], ["y"])], dtype)


def test_a_model_runs_and_describes_itself(tmp_path: Path) -> None:
    with OrtRunner(_double(tmp_path / "m.onnx")) as runner:
        assert [(info.name, info.dtype, info.shape) for info in runner.inputs] == [
            ("x", torch.float32, ("rows", 31))
        ]
        x = torch.randn(3, 31)
        assert torch.equal(runner.run({"x": x})["y"], x + x)
        assert runner.notes == ()


def test_inputs_that_are_views_are_read_as_they_look(tmp_path: Path) -> None:
    with OrtRunner(_double(tmp_path / "m.onnx")) as runner:
        x = torch.randn(31, 7).T
        assert torch.equal(runner.run({"x": x})["y"], 2 * x)
        sliced = torch.randn(9, 62)[::2, 5:36]
        assert torch.equal(runner.run({"x": sliced})["y"], 2 * sliced)


def test_bfloat16_is_emulated_and_says_so(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["square"]),
        helper.make_node("Sub", ["square", "x"], ["y"]),
    ]
    path = _save(tmp_path / "m.onnx", nodes, BFLOAT16)
    with OrtRunner(path) as runner:
        assert runner.notes == (EMULATED,)
        x = torch.randn(5, 31).bfloat16()
        y = runner.run({"x": x})["y"]
        assert y.dtype is torch.bfloat16
        assert torch.equal(y, x * x - x)  # both round each node to bfloat16


def test_bfloat16_runs_through_zero_rows(tmp_path: Path) -> None:
    path = _save(tmp_path / "m.onnx", [helper.make_node("Neg", ["x"], ["y"])], BFLOAT16)
    with OrtRunner(path) as runner:
        assert runner.run({"x": torch.zeros(0, 31).bfloat16()})["y"].shape == (0, 31)


def test_external_data_is_found_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = torch.randn(31)
    path = _save(
        tmp_path / "m.onnx",
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        TensorProto.FLOAT,
        w=weight,
    )
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="m.data", size_threshold=0)
    monkeypatch.chdir("/")
    with OrtRunner(path) as runner:
        x = torch.randn(2, 31)
        assert torch.equal(runner.run({"x": x})["y"], x * weight)


def test_a_model_that_is_refused_says_by_whom(tmp_path: Path) -> None:
    path = _save(tmp_path / "m.onnx", [helper.make_node("Nothing", ["x"], ["y"])], 1)
    with pytest.raises(UnsupportedModelError, match=r"Model m\.onnx must load on ort-stock, got"):
        OrtRunner(path)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"no model")
    for backend in ("ort-stock", "torch"):
        with pytest.raises(UnsupportedModelError, match=f"m.onnx must load on {backend}, got"):
            open_runner(path, backend)


def test_inputs_are_checked_by_name(tmp_path: Path) -> None:
    with OrtRunner(_double(tmp_path / "m.onnx")) as runner:
        with pytest.raises(UsageError, match="needs every input, got none for x"):
            runner.run({})
        with pytest.raises(UsageError, match="has no input of that name, got 'xx'") as caught:
            runner.run({"xx": torch.zeros(1, 31)})
        assert "did you mean 'x'?" in str(caught.value)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (torch.zeros(1, 31, dtype=torch.float64), "must be torch.float32, got torch.float64"),
        (torch.zeros(1, 30), r"must be \[rows, 31\], got \[1, 30\]"),
        (torch.zeros(31), r"must be \[rows, 31\], got \[31\]"),
    ],
    ids=["type", "size", "rank"],
)
def test_inputs_of_another_type_or_shape_are_refused(
    tmp_path: Path, x: torch.Tensor, text: str
) -> None:
    with (
        OrtRunner(_double(tmp_path / "m.onnx")) as runner,
        pytest.raises(UsageError, match=text),
    ):
        runner.run({"x": x})


def test_a_backend_is_refused_for_a_source_it_cannot_run(tmp_path: Path) -> None:
    path = _double(tmp_path / "m.onnx")
    with pytest.raises(UsageError, match="Backend tensorrt must be able to run its source"):
        open_runner(path, "tensorrt")
    with pytest.raises(UsageError, match="Backend must be a known one, got 'trt'"):
        open_runner(path, "trt")


def test_bfloat16_that_an_attribute_makes_is_emulated_too(tmp_path: Path) -> None:
    one = helper.make_tensor("one", BFLOAT16, [1], [1.5])
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("ConstantOfShape", ["shape"], ["c"], value=one),
        helper.make_node("EyeLike", ["x"], ["e"], dtype=BFLOAT16),
        helper.make_node("Add", ["c", "e"], ["ce"]),
        helper.make_node("Add", ["x", "ce"], ["y"]),
    ]
    with OrtRunner(_save(tmp_path / "m.onnx", nodes, BFLOAT16)) as runner:
        y = runner.run({"x": torch.zeros(3, 31, dtype=torch.bfloat16)})["y"]
    assert torch.equal(y, (1.5 + torch.eye(3, 31)).bfloat16())
