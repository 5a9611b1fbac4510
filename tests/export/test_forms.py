"""The three forms of one model: what they hold, and that they compute the same."""

from __future__ import annotations

from typing import Any

import onnx
import onnx_ir as ir
import pytest
import torch
from attention_cases import AttentionCase, attention_cases
from attention_model import attention_model, case_signature, run_ort
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qkexport.errors import InvalidSpecError, UnsupportedModelError, UsageError
from qkexport.export import Form, to_form
from qkexport.export.node import attention_nodes
from qkexport.spec import OP_DOMAIN, AttentionSpec


def _case(seqlen: int = 5, **changes: Any) -> AttentionCase:
    spec = AttentionSpec(**{"num_heads": 4, "num_kv_heads": 2, "scale": 0.3, **changes})
    inputs = {
        "query": torch.randn(2, seqlen, 4 * 8),
        "key": torch.randn(2, seqlen, 2 * 8),
        "value": torch.randn(2, seqlen, 2 * 8),
        "k_norm_weight": torch.randn(8),
        "attn_mask": torch.randn(seqlen, seqlen) > -0.5,
    }
    return AttentionCase(spec, inputs)


def _bare(case: AttentionCase, opset: int = 24, *, presents: bool = False) -> ir.Model:
    """A model of one node without a function, as the rewriter leaves it."""
    return attention_model(case_signature(case, presents=presents, dynamic=False), None, opset)


def _node(model: ir.Model) -> ir.Node:
    (node,) = attention_nodes(model.graph)
    return node


def _bytes(model: ir.Model) -> bytes:
    data: bytes = ir.to_proto(model).SerializeToString(deterministic=True)
    return data


def test_a_portable_model_holds_a_function_for_its_node() -> None:
    model = to_form(_bare(_case()), "portable")
    assert _node(model).op_identifier() in model.functions
    assert model.opset_imports[OP_DOMAIN] == 1
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


def test_a_fused_model_holds_no_function() -> None:
    model = to_form(to_form(_bare(_case()), "portable"), "fused")
    assert not model.functions
    assert _node(model).overload == ""
    assert [x.name if x else None for x in _node(model).inputs] == [
        *("query", "key", "value", None, "k_norm_weight"),
        *(None, None, None, None, None, "attn_mask"),
    ]
    onnx.checker.check_model(ir.to_proto(model))


def test_a_fused_model_for_tensorrt_names_the_inputs_it_passes() -> None:
    node = _node(to_form(_bare(_case(), presents=True), Form.FUSED, runtime="tensorrt"))
    names = ["query", "key", "value", "k_norm_weight", "attn_mask"]
    assert [x.name for x in node.inputs if x is not None] == names
    assert len(node.inputs) == len(names)
    assert node.attributes.get_string("input_roles") == ",".join(names)
    assert node.attributes.get_string("output_roles") == "output,present_key,present_value"


@pytest.mark.parametrize("runtime", ["ort", "tensorrt"])
def test_a_native_model_holds_standard_operators_only(runtime: str) -> None:
    model = to_form(to_form(_bare(_case()), "portable"), "native", runtime=runtime)
    assert {node.domain for node in model.graph} == {""}
    assert not model.functions
    assert OP_DOMAIN not in model.opset_imports
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


def test_the_source_of_a_conversion_stays_as_it_is() -> None:
    model = to_form(_bare(_case()), "portable")
    before = _bytes(model)
    for form in Form:
        to_form(model, form)
    to_form(model, "fused", runtime="tensorrt")
    assert _bytes(model) == before


def test_portable_to_fused_and_back_is_the_same_model() -> None:
    portable = to_form(_bare(_case()), "portable")
    fused = to_form(portable, "fused", runtime="tensorrt")
    assert _bytes(to_form(fused, "portable")) == _bytes(portable)
    assert _bytes(to_form(to_form(portable, "fused"), "portable")) == _bytes(portable)
    assert _bytes(to_form(portable, "portable")) == _bytes(portable)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    case=attention_cases(), opset=st.integers(17, 25), presents=st.booleans(), dynamic=st.booleans()
)
def test_every_way_to_a_form_computes_the_same(
    case: AttentionCase, opset: int, presents: bool, dynamic: bool
) -> None:
    signature = case_signature(case, presents=presents, dynamic=dynamic)
    portable = to_form(attention_model(signature, None, opset), "portable")
    packed = to_form(portable, "fused", runtime="tensorrt")
    expected = run_ort(portable, case.inputs)
    for model in (to_form(packed, "portable"), to_form(packed, "native")):
        results = run_ort(model, case.inputs)
        for result, goal in zip(results, expected, strict=True):
            torch.testing.assert_close(result, goal, rtol=0, atol=0, equal_nan=True)


def _two_nodes(first: AttentionCase, second: AttentionCase) -> ir.Model:
    """Two attentions side by side; the second's names end in _2."""
    model, other = _bare(first), _bare(second)
    for value in (*other.graph.inputs, *other.graph.outputs):
        value.name = f"{value.name}_2"
    node = _node(other)
    node.name = "attention_2"
    inputs, outputs = list(other.graph.inputs), list(other.graph.outputs)
    other.graph.outputs.clear()
    other.graph.inputs.clear()
    other.graph.remove(node)
    model.graph.append(node)
    model.graph.inputs.extend(inputs)
    model.graph.outputs.extend(outputs)
    return model


def test_two_structures_in_one_model_get_an_overload_each() -> None:
    first, second = _case(), _case(causal="upper_left", qk_norm="l2")
    model = to_form(_two_nodes(first, second), "portable")
    assert len(model.functions) == 2
    inputs = {**first.inputs, **{f"{name}_2": x for name, x in second.inputs.items()}}
    results = run_ort(model, inputs)
    for result, case in zip(results, (first, second), strict=True):
        (alone,) = run_ort(to_form(_bare(case), "portable"), case.inputs)
        torch.testing.assert_close(result, alone)


def test_nodes_of_one_structure_share_a_function() -> None:
    model = to_form(_two_nodes(_case(5), _case(7)), "portable")
    assert len(model.functions) == 1, "the length is not part of the structure"


@pytest.mark.parametrize(("before", "after"), [(8, 10), (11, 11)])
def test_overloads_raise_the_ir_version_to_the_first_that_has_them(before: int, after: int) -> None:
    model = _bare(_case())
    model.ir_version = before
    assert to_form(model, "portable").ir_version == after
    assert to_form(model, "fused").ir_version == before


def test_a_node_inside_a_branch_is_converted_too() -> None:
    case = _case()
    model = _inside_branch(_bare(case))
    inputs = {**case.inputs, "condition": torch.tensor(True)}
    (expected,) = run_ort(to_form(_bare(case), "portable"), case.inputs)
    for form in (Form.PORTABLE, Form.NATIVE):
        converted = to_form(model, form)
        onnx.checker.check_model(ir.to_proto(converted))
        torch.testing.assert_close(run_ort(converted, inputs)[0], expected)


def _inside_branch(model: ir.Model) -> ir.Model:
    """Moves the model's node into the then-branch of an If; else gives zeros."""
    graph, node = model.graph, _node(model)
    output = node.outputs[0]
    graph.outputs.clear()
    graph.remove(node)
    shape = ir.node("Shape", [graph.inputs[0]])
    zeros = ir.node("ConstantOfShape", [shape.outputs[0]])
    zeros.outputs[0].name = "zeros"
    branches = {
        "then_branch": ir.Graph([], [output], nodes=[node], name="then"),
        "else_branch": ir.Graph([], zeros.outputs, nodes=[shape, zeros], name="else"),
    }
    condition = ir.Value(name="condition", type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape([]))
    graph.inputs.append(condition)
    attributes = [ir.AttrGraph(name, branch) for name, branch in branches.items()]
    choice = ir.Node("", "If", [condition], attributes, num_outputs=1, name="choice")
    choice.outputs[0].name = "chosen"
    choice.outputs[0].type, choice.outputs[0].shape = output.type, ir.Shape([None] * 3)
    graph.append(choice)
    graph.outputs.append(choice.outputs[0])
    return model


def test_other_functions_of_the_model_survive() -> None:
    model = _bare(_case())
    x = ir.Value(name="x")
    relu = ir.node("Relu", [x])
    body = ir.Graph([x], relu.outputs, nodes=[relu], opset_imports={"": 24}, name="body")
    model.functions["mine", "Act", ""] = ir.Function("mine", "Act", graph=body, attributes=[])
    for form in Form:
        assert ("mine", "Act", "") in to_form(model, form).functions


def test_missing_types_of_outputs_are_filled_in() -> None:
    model = _bare(_case(), presents=True)
    for value in _node(model).outputs:
        value.type, value.shape = None, None
    outputs = _node(to_form(model, "fused")).outputs
    assert [value.dtype for value in outputs] == [ir.DataType.FLOAT] * 3
    assert [list(value.shape or ()) for value in outputs] == [
        [2, 5, 32],
        [2, 2, 5, 8],
        [2, 2, 5, 8],
    ]


def test_a_model_without_attention_comes_back_as_it_was() -> None:
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([3]))
    relu = ir.node("Relu", [x])
    graph = ir.Graph([x], relu.outputs, nodes=[relu], opset_imports={"": 13}, name="g")
    model = ir.Model(graph, ir_version=8)
    for form in Form:
        assert _bytes(to_form(model, form)) == _bytes(model)


@pytest.mark.parametrize(
    ("form", "runtime", "message"),
    [
        ("quick", "ort", "Form of a model is not known, got 'quick'"),
        ("fused", "tflite", "Runtime of a model is not known, got 'tflite'"),
        ("portable", "tensorrt", "must be fused or native, got 'portable'"),
    ],
)
def test_what_cannot_be_asked_for_is_refused(form: str, runtime: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        to_form(_bare(_case()), form, runtime=runtime)


def test_an_opset_without_a_body_is_refused_but_may_stay_fused() -> None:
    model = _bare(_case(), opset=16)
    to_form(model, "fused")
    with pytest.raises(UnsupportedModelError, match="17 to 25, got 16"):
        to_form(model, "portable")


def test_a_node_that_breaks_the_contract_is_named() -> None:
    model = _bare(_case())
    _node(model).attributes.add(ir.AttrInt64("num_kv_heads", 3))
    with pytest.raises(InvalidSpecError, match=r"node 'attention'.*multiple of num_kv_heads"):
        to_form(model, "portable")
