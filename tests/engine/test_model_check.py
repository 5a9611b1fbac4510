"""What TensorRT would drop without a word is refused first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
from engine_models import save_fused, save_native

from qkexport.engine.bindings import Flavour
from qkexport.engine.model_check import check_model
from qkexport.errors import UnsupportedModelError

RTX, FULL = Flavour.TENSORRT_RTX, Flavour.TENSORRT


def _native(folder: Path, **options: Any) -> ir.Model:
    return ir.load(save_native(folder / "model.onnx", **options))


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"is_causal": 1},
        {"softcap": 0.0},
        {"left_window_size": -1, "right_window_size": -1},
        {"qk_matmul_output_mode": 0},
    ],
)
@pytest.mark.parametrize("flavour", Flavour)
def test_attributes_that_tensorrt_honours_or_that_say_nothing_pass(
    tmp_path: Path, flavour: Flavour, attributes: dict[str, Any]
) -> None:
    check_model(_native(tmp_path, attributes=attributes), flavour)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("softcap", 5.0),
        ("left_window_size", 3),
        ("right_window_size", 0),
        ("qk_matmul_output_mode", 1),
        ("softmax_precision", 1),
        ("an_attribute_of_a_later_opset", 1),
    ],
)
@pytest.mark.parametrize("flavour", Flavour)
def test_an_attribute_that_tensorrt_ignores_is_refused(
    tmp_path: Path, flavour: Flavour, name: str, value: float
) -> None:
    with pytest.raises(UnsupportedModelError, match=f"'attention' uses attribute {name}, which"):
        check_model(_native(tmp_path, attributes={name: value}), flavour)


def test_a_mask_beside_is_causal_is_refused(tmp_path: Path) -> None:
    check_model(_native(tmp_path, masked=True), RTX)
    with pytest.raises(UnsupportedModelError, match="must have a mask or is_causal, not both"):
        check_model(_native(tmp_path, masked=True, attributes={"is_causal": 1}), RTX)


def _attention(model: ir.Model) -> ir.Node:
    return next(node for node in model.graph if node.op_type == "Attention")


def test_an_input_that_tensorrt_ignores_is_refused(tmp_path: Path) -> None:
    model = _native(tmp_path)
    node = _attention(model)
    node.resize_inputs(7)
    node.replace_input_with(6, ir.Value(name="nonpad"))
    with pytest.raises(
        UnsupportedModelError, match=r"inputs that TensorRT ignores, got \['nonpad'"
    ):
        check_model(model, RTX)


def test_presents_are_refused(tmp_path: Path) -> None:
    model = _native(tmp_path)
    node = _attention(model)
    node.resize_outputs(3)
    node.outputs[1].name = "present_key"
    with pytest.raises(UnsupportedModelError, match=r"does not compute, got \['present_key'\]"):
        check_model(model, RTX)


def test_a_plugin_node_never_reaches_rtx(tmp_path: Path) -> None:
    model = ir.load(save_fused(tmp_path / "model.onnx"))
    check_model(model, FULL)
    with pytest.raises(UnsupportedModelError, match="qkexport::QKNormAttention"):
        check_model(model, RTX)


@pytest.mark.parametrize("flavour", Flavour)
def test_operators_of_other_domains_are_refused(tmp_path: Path, flavour: Flavour) -> None:
    model = _native(tmp_path)
    _attention(model).domain = "com.microsoft"
    with pytest.raises(UnsupportedModelError, match="microsoft::Attention"):
        check_model(model, flavour)


def test_local_functions_are_looked_into(tmp_path: Path) -> None:
    model = _native(tmp_path)
    node = _attention(model)
    inner = ir.Node("", "Attention", [ir.Value(name=name) for name in "qkv"], name="inner")
    inner.attributes.add(ir.AttrFloat32("softcap", 3.0))
    graph = ir.Graph(
        [x for x in inner.inputs if x],
        inner.outputs,
        nodes=[inner],
        opset_imports={"": 24},
        name="f",
    )
    function = ir.Function("local", "Attend", graph=graph, attributes=[])
    model.functions[function.identifier()] = function
    node.domain, node.op_type = "local", "Attend"
    with pytest.raises(UnsupportedModelError, match="'inner' uses attribute softcap"):
        check_model(model, RTX)
