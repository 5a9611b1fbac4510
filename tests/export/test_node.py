"""What a node says, read from either spelling."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch
from attention_cases import AttentionCase, attention_cases
from attention_model import attention_model, case_signature
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qkexport.errors import InvalidSpecError, UnsupportedModelError
from qkexport.export import node_signature, to_form
from qkexport.export.node import attention_nodes
from qkexport.signature import AttentionSignature
from qkexport.spec import AttentionSpec


def _node(model: ir.Model) -> ir.Node:
    (node,) = attention_nodes(model.graph)
    return node


def _simple_node() -> ir.Node:
    spec = AttentionSpec(num_heads=2, num_kv_heads=1, scale=0.5)
    inputs = {
        "query": torch.randn(1, 3, 8),
        "key": torch.randn(1, 3, 4),
        "value": torch.randn(1, 3, 4),
    }
    signature = case_signature(AttentionCase(spec, inputs), presents=False, dynamic=False)
    return _node(attention_model(signature, None, 24))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=attention_cases(), presents=st.booleans(), dynamic=st.booleans())
def test_a_node_says_what_it_was_made_of_in_both_spellings(
    case: AttentionCase, presents: bool, dynamic: bool
) -> None:
    signature = case_signature(case, presents=presents, dynamic=dynamic)
    model = attention_model(signature, None, 24)
    assert _same(node_signature(_node(model)), signature)
    packed = to_form(model, "fused", runtime="tensorrt")
    assert _same(node_signature(_node(packed)), signature)


def _same(left: AttentionSignature, right: AttentionSignature) -> bool:
    return (left.spec, dict(left.inputs), left.outputs) == (
        right.spec,
        dict(right.inputs),
        right.outputs,
    )


def test_an_input_without_a_type_is_refused() -> None:
    node = _simple_node()
    assert node.inputs[1] is not None
    node.inputs[1].type = None
    with pytest.raises(UnsupportedModelError, match="'attention' must know type and rank of key"):
        node_signature(node)


def test_an_input_without_a_shape_is_refused() -> None:
    node = _simple_node()
    assert node.inputs[2] is not None
    node.inputs[2].shape = None
    with pytest.raises(UnsupportedModelError, match="type and rank of value"):
        node_signature(node)


def test_a_type_the_operator_does_not_take_is_refused() -> None:
    node = _simple_node()
    assert node.inputs[0] is not None
    node.inputs[0].dtype = ir.DataType.DOUBLE
    with pytest.raises(InvalidSpecError, match=r"query has a type.*DOUBLE.*\nNote: accepted"):
        node_signature(node)


def test_an_unknown_role_is_refused() -> None:
    node = _simple_node()
    node.attributes.add(ir.AttrString("input_roles", "query,key,values"))
    with pytest.raises(InvalidSpecError, match="must name inputs of the operator, got 'values'"):
        node_signature(node)


def test_more_inputs_than_roles_are_refused() -> None:
    node = _simple_node()
    node.attributes.add(ir.AttrString("input_roles", "query,key"))
    with pytest.raises(InvalidSpecError, match="as many inputs as names for them, got 3"):
        node_signature(node)


def test_a_role_named_twice_is_refused() -> None:
    node = _simple_node()
    node.attributes.add(ir.AttrString("input_roles", "query,key,key"))
    with pytest.raises(InvalidSpecError, match="must name inputs of the operator once"):
        node_signature(node)


def test_output_roles_in_another_order_are_refused() -> None:
    node = _simple_node()
    node.attributes.add(ir.AttrString("output_roles", "present_key"))
    with pytest.raises(
        InvalidSpecError, match="outputs must be output alone or with both presents"
    ):
        node_signature(node)


def test_more_output_roles_than_outputs_are_refused() -> None:
    node = _simple_node()
    node.attributes.add(ir.AttrString("output_roles", "output,present_key,present_value"))
    with pytest.raises(InvalidSpecError, match="as many outputs as names for them, got 1"):
        node_signature(node)


def test_a_missing_attribute_is_refused_with_the_node_s_name() -> None:
    node = _simple_node()
    del node.attributes["scale"]
    with pytest.raises(InvalidSpecError, match=r"node 'attention': .*every attribute"):
        node_signature(node)
