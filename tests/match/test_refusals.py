"""One graph for each reason not to fuse: reason and node are named, and nothing changes."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir
import pytest
from graphs import MUTATIONS, Plan, build

from qkexport.match import NearMiss, find_attention
from qkexport.rewrite import fuse_attention

_PLAN = Plan(
    norm="rms_reciprocal", layout="bshd", gain="channel", bias=False, rope="half", rope_first=False,
    repeat="expand", key="transpose", scale="logits_mul", temperature="none", mask="where_low",
    softcap=False, guard=False, fused_attention=False, batch=2, query_tokens=5, key_tokens=5,
    heads=4, kv_heads=2, head_dim=8, value_dim=8, dynamic=True, past=False,
)  # fmt: skip

# Mutation: (changes of the plan, part of the reason, operator of the node that is blamed).
_REASONS: dict[str, tuple[dict[str, object], str, str]] = {
    "norm_axis": ({}, "does not run over channels", "Mul"),
    "mean_kept": ({"norm": "layer_written"}, "between norm and scores stands", "Div"),
    "epsilon_outside": ({}, "between norm and scores stands Div", "Div"),
    "gain_after_rope": ({}, "a scale a channel comes after the rotation", "Add"),
    "channel_scale_after_rope": ({}, "a scale a channel comes after the rotation", "Add"),
    "key_only": ({}, "only the keys are normalized", "MatMul"),
    "epsilons_differ": ({}, "different epsilons, 1e-05 and 0.01", "MatMul"),
    "kinds_differ": ({}, "norms differ: rms and l2", "MatMul"),
    "softmax_axis": ({}, "softmax does not run over the keys", "Softmax"),
    "one_sign": ({}, "between norm and scores stands Add", "Add"),
    "mispaired": ({}, "between norm and scores stands Add", "Add"),
    "trailing_rotation": ({}, "between norm and scores stands Concat", "Concat"),
    "heads_mixed": ({}, "between norm and scores stands Gather", "Gather"),
    "clipped": ({}, "between norm and scores stands Clip", "Clip"),
    "squared_gain_by_token": ({}, "between norm and scores stands Mul", "Mul"),
    "key_by_token": ({}, "the keys are scaled by token", "ReduceMean"),
    "probabilities_scaled": ({}, "the probabilities are changed", "MatMul"),
    "offset_query": ({}, "a bias comes after the rotation", "Add"),
    "last_head_unnormed": ({}, "between norm and scores stands Concat", "Concat"),
    "mask_low": ({}, "filled with a number that does not mask", "MatMul"),
}


def _near_miss(plan: Plan) -> NearMiss:
    model = ir.from_proto(build(plan, 0))
    before = ir.to_proto(model).SerializeToString()
    report = find_attention(model)
    fuse_attention(model, report)
    assert ir.to_proto(model).SerializeToString() == before
    assert not report
    assert (report.found, report.fused) == (1, 0)
    (miss,) = report.near_misses
    return miss


@pytest.mark.parametrize("mutation", _REASONS)
def test_what_cannot_be_proven_stays_with_its_reason(mutation: str) -> None:
    change, reason, op_type = _REASONS[mutation]
    plan = dataclasses.replace(_PLAN, **change, mutation=mutation)
    miss = _near_miss(plan)
    assert reason in miss.reason
    assert miss.node.op_type == op_type


def test_every_mutation_of_the_fuzzer_has_a_reason_or_changes_nothing_here() -> None:
    assert set(MUTATIONS) - set(_REASONS) == {"tiled_heads"}


def test_tiled_heads_keep_their_keys_as_they_are() -> None:
    model = ir.from_proto(build(dataclasses.replace(_PLAN, mutation="tiled_heads"), 0))
    (match,) = find_attention(model).matches
    assert not match.spec.normalize_key
    assert match.spec.num_kv_heads == _PLAN.heads


def test_matching_changes_nothing() -> None:
    model = ir.from_proto(build(_PLAN, 0))
    before = ir.to_proto(model).SerializeToString()
    assert find_attention(model)
    assert ir.to_proto(model).SerializeToString() == before
