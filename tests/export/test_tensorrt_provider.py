"""Models for ONNX Runtime's TensorRT provider: structure here, runs in tests/gpu."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest
from engine_models import save_fused, spec_with

from qkexport.export import for_tensorrt_provider
from qkexport.spec import OP_DOMAIN, OP_TYPE


@pytest.fixture
def model(tmp_path: Path) -> ir.Model:
    return ir.load(save_fused(tmp_path / "model.onnx", spec_with(causal="upper_left")))


def test_attentions_stand_in_the_domain_of_plugins_with_named_inputs(model: ir.Model) -> None:
    result = for_tensorrt_provider(model)
    (node,) = [node for node in result.graph if node.op_type == OP_TYPE]
    assert node.domain == "trt.plugins"
    assert node.overload == ""
    roles = node.attributes.get_string("input_roles")
    assert roles == "query,key,value,q_norm_weight,k_norm_weight"
    assert len(node.inputs) == 5
    assert None not in node.inputs
    assert result.graph.opset_imports == {"": 24, "trt.plugins": 1}
    assert not result.functions


def test_outputs_of_plugins_are_described(model: ir.Model) -> None:
    """The provider's schema of a plugin says nothing of its outputs."""
    result = for_tensorrt_provider(model)
    (node,) = [node for node in result.graph if node.op_type == OP_TYPE]
    assert all(value.type is not None and value.shape is not None for value in node.outputs)


def test_the_given_model_stays_as_it_is(model: ir.Model) -> None:
    for_tensorrt_provider(model)
    assert [node.domain for node in model.graph if node.op_type == OP_TYPE] == [OP_DOMAIN]
    assert OP_DOMAIN in model.graph.opset_imports


def test_a_model_without_attentions_imports_nothing(tmp_path: Path) -> None:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([2]))
    relu = ir.node("Relu", [x])
    graph = ir.Graph([x], relu.outputs, nodes=[relu], opset_imports={"": 24})
    assert for_tensorrt_provider(ir.Model(graph, ir_version=10)).graph.opset_imports == {"": 24}
