"""Looking into a file without its weights sees all the rest."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from qkexport.onnx_outline import load_outline

_ELEMENTS = {
    TensorProto.FLOAT: "float_data",
    TensorProto.INT32: "int32_data",
    TensorProto.INT64: "int64_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.UINT64: "uint64_data",
}


def _model(initializers: list[onnx.TensorProto]) -> onnx.ModelProto:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3])
    constant = helper.make_node("Constant", [], ["c"], value_floats=[1.0, 2.0, 3.0])
    add = helper.make_node("Add", ["x", "c"], ["y"])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3])
    graph = helper.make_graph([constant, add], "graph", [value], [result], initializers)
    model = helper.make_model(graph, producer_name="test")
    helper.set_model_props(model, {"key": "value"})
    return model


def _stored(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize("kind", _ELEMENTS)
def test_elements_of_every_field_are_left_out(kind: TensorProto.DataType, tmp_path: Path) -> None:
    tensor = helper.make_tensor("w", kind, [2, 3], [1, 2, 3, 4, 5, 6])
    assert len(getattr(tensor, _ELEMENTS[kind])) == 6
    outline = load_outline(_stored(_model([tensor]), tmp_path))
    tensor.ClearField(_ELEMENTS[kind])
    assert outline == _model([tensor])


def test_raw_elements_are_left_out_and_the_rest_is_as_it_was(tmp_path: Path) -> None:
    tensors = [
        numpy_helper.from_array(np.zeros((129, 257), np.float32), "large"),
        numpy_helper.from_array(np.zeros((0, 4), np.float16), "empty"),
        numpy_helper.from_array(np.array(3.0), "scalar"),
    ]
    path = _stored(_model(tensors), tmp_path)
    outline = load_outline(path)
    for tensor in tensors:
        tensor.ClearField("raw_data")
    assert path.stat().st_size > 129 * 257 * 4
    assert outline == _model(tensors)
    assert [tensor.data_type for tensor in outline.graph.initializer] == [1, 10, 11]


def test_external_data_is_named_but_need_not_exist(tmp_path: Path) -> None:
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [4], b"\0" * 16, raw=True)
    onnx.external_data_helper.set_external_data(tensor, "absent.data")
    tensor.ClearField("raw_data")
    model = _model([tensor])
    assert load_outline(_stored(model, tmp_path)) == model


def test_graphs_in_two_parts_are_merged_as_protobuf_does(tmp_path: Path) -> None:
    first = _model([numpy_helper.from_array(np.ones(5, np.float32), "w")])
    second = onnx.ModelProto()
    second.graph.doc_string = "more"
    path = tmp_path / "model.onnx"
    path.write_bytes(first.SerializeToString() + second.SerializeToString())
    outline = load_outline(path)
    assert outline.graph.doc_string == "more"
    assert [tensor.name for tensor in outline.graph.initializer] == ["w"]


@pytest.mark.parametrize("left", [1, 5, 60, 59049, 65536])
def test_truncated_file_is_refused(left: int, tmp_path: Path) -> None:
    whole = _model([numpy_helper.from_array(np.ones(2**15, np.float32), "w")]).SerializeToString()
    path = tmp_path / "model.onnx"
    path.write_bytes(whole[:left])
    with pytest.raises(ValueError, match="field"):
        load_outline(path)


@pytest.mark.parametrize("content", [b"\xff" * 64, b"\x3b\x00", b"\x0f", b"hello, world"])
def test_other_content_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"field|number"):
        load_outline(path)


def test_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_outline(tmp_path / "absent.onnx")
