"""Rewriting: a valid graph, described values, nothing left behind, names kept."""

from __future__ import annotations

import dataclasses

import onnx
import onnx_ir as ir
import pytest
from fused_model import fuse
from graphs import Plan, build, draw

from qkexport.export import node_signature
from qkexport.match import Fused, find_attention
from qkexport.rewrite import fuse_attention

_PLAN = Plan(
    norm="rms_reciprocal", layout="bshd", gain="one_plus", bias=False, rope="half",
    rope_first=False, repeat="expand", key="reshape", scale="both_sides", temperature="head_logits",
    mask="where_added", softcap=True, guard=True, fused_attention=False, batch=2, query_tokens=5,
    key_tokens=5, heads=4, kv_heads=2, head_dim=8, value_dim=6, dynamic=True, past=True,
)  # fmt: skip


def _rewritten(plan: Plan) -> ir.Model:
    model = ir.from_proto(build(plan, 0))
    fuse_attention(model, find_attention(model))
    return model


def _node(model: ir.Model) -> ir.Node:
    (node,) = (node for node in model.graph if node.op_type == "QKNormAttention")
    return node


def test_all_of_the_attention_is_gone() -> None:
    left = {node.op_type for node in _rewritten(_PLAN).graph}
    assert left.isdisjoint({"Softmax", "Tanh", "IsNaN", "ReduceMean", "Sqrt", "Expand", "Einsum"})


def test_inputs_and_outputs_keep_their_names() -> None:
    before, after = ir.from_proto(build(_PLAN, 0)), _rewritten(_PLAN)
    for values in ("inputs", "outputs"):
        names = [[v.name for v in getattr(m.graph, values)] for m in (before, after)]
        assert names[0] == names[1]


@pytest.mark.parametrize("seed", range(20))
def test_every_value_of_the_node_is_described_as_matched(seed: int) -> None:
    plan = dataclasses.replace(draw(seed, mutate=False), norm="rms_div")
    model = ir.from_proto(build(plan, seed))
    report = find_attention(model)
    fuse_attention(model, report)
    assert node_signature(_node(model)) == report.matches[0].signature
    onnx.checker.check_model(ir.to_proto(fuse(model).model), full_check=True)


def test_the_domain_is_imported() -> None:
    assert _rewritten(_PLAN).graph.opset_imports["qkexport"] == 1


def test_the_fused_node_is_found_again_and_left_alone() -> None:
    model = _rewritten(_PLAN)
    report = find_attention(model)
    assert report
    assert (report.found, report.fused) == (1, 1)
    (found,) = report.attentions
    assert isinstance(found, Fused)
    assert found.spec.softcap == 5.0
    before = ir.to_proto(model).SerializeToString()
    fuse_attention(model, report)
    assert ir.to_proto(model).SerializeToString() == before


def test_every_attribute_is_explicit() -> None:
    attributes = set(_node(_rewritten(_PLAN)).attributes)
    assert {"num_heads", "scale", "qk_norm", "plugin_version", "input_roles"} <= attributes
