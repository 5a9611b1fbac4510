"""Bodies for TensorRT: they build, and they give the reference answer where they can be run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
import torch
from attention_cases import AttentionCase, attention_cases
from attention_grid import GridCase, pairwise_cases
from attention_model import assert_like_reference, attention_model, case_signature, run_body
from engine_builds import build_engines
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qkexport.export import save_model, to_form
from qkexport.onnx_function import lower
from qkexport.spec import AttentionSpec

GRID = pairwise_cases()


def _native_file(grid_case: GridCase, path: Path) -> Path:
    case = grid_case.case
    signature = case_signature(case, presents=grid_case.presents, dynamic=grid_case.dynamic)
    model = attention_model(signature, None, grid_case.opset)
    return save_model(to_form(model, "native", runtime="tensorrt"), path)


def test_every_pair_of_options_builds(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx")
    models = [
        (_native_file(grid_case, tmp_path / f"{i}.onnx"), _shapes(grid_case.case))
        for i, grid_case in enumerate(GRID)
    ]
    builds = build_engines(models)
    failed = [
        f"{grid_case.label}: {build.messages}"
        for grid_case, build in zip(GRID, builds, strict=True)
        if not build.digest or any("Unused Input" in message for message in build.messages)
    ]
    assert not failed, "\n".join(failed)


def _shapes(case: AttentionCase) -> dict[str, tuple[int, ...]]:
    return {name: tuple(x.shape) for name, x in case.inputs.items()}


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    case=attention_cases(),
    opset=st.integers(17, 25),
    presents=st.booleans(),
    dynamic=st.booleans(),
)
def test_the_float32_body_gives_the_reference_answer(
    case: AttentionCase, opset: int, presents: bool, dynamic: bool
) -> None:
    results = run_body(case, opset, runtime="tensorrt", presents=presents, dynamic=dynamic)
    assert_like_reference(case, results)


@pytest.mark.parametrize("grid_case", GRID, ids=range(len(GRID)))
def test_every_pair_of_options_gives_the_reference_answer(grid_case: GridCase) -> None:
    if grid_case.choice["dtype"] is torch.bfloat16:
        # ONNX Runtime has no bfloat16 products on the CPU; the graph is the float16 one.
        case = AttentionCase(grid_case.case.spec, _as_float16(grid_case.case.inputs))
    else:
        case = grid_case.case
    results = run_body(
        case,
        grid_case.opset,
        runtime="tensorrt",
        presents=grid_case.presents,
        dynamic=grid_case.dynamic,
    )
    assert_like_reference(case, results, rounds_inside=True)


def _as_float16(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    half = torch.float16
    return {k: x.to(half) if x.dtype is torch.bfloat16 else x for k, x in inputs.items()}


def _attention_nodes(grid_case: GridCase) -> list[ir.Node]:
    signature = case_signature(
        grid_case.case, presents=grid_case.presents, dynamic=grid_case.dynamic
    )
    function = lower(signature, "tensorrt", grid_case.opset)
    return [node for node in function.all_nodes() if node.op_type == "Attention"]


def test_attention_gets_only_what_tensorrt_is_known_to_honour() -> None:
    nodes = [node for grid_case in GRID for node in _attention_nodes(grid_case)]
    assert len(nodes) >= 3
    for node in nodes:
        assert set(node.attributes) <= {"scale", "is_causal"}
        assert len(node.inputs) <= 4
        assert len(node.outputs) == 1
        assert not (node.attributes.get_int("is_causal", 0) and len(node.inputs) == 4)


def test_primitives_serve_where_tensorrt_has_no_kernel() -> None:
    for grid_case in GRID:
        choice = grid_case.choice
        expected = (
            choice["opset"] >= 23
            and choice["dtype"] is not torch.float32
            and not choice["softcap"]
            and choice["head_dims"] == (64, 64)
        )
        assert bool(_attention_nodes(grid_case)) == expected, grid_case.label


def _half_case(**changes: Any) -> AttentionCase:
    attributes: dict[str, Any] = {
        "num_heads": 4,
        "num_kv_heads": 2,
        "scale": 0.125,
        "causal": "upper_left",
    }
    spec = AttentionSpec(**{**attributes, **changes})
    inputs = {
        "query": torch.randn(2, 6, 4 * 64).half(),
        "key": torch.randn(2, 6, 2 * 64).half(),
        "value": torch.randn(2, 6, 2 * 64).half(),
    }
    return AttentionCase(spec, inputs)


def test_models_that_differ_in_one_attribute_give_different_engines(tmp_path: Path) -> None:
    pytest.importorskip("tensorrt_rtx")
    changes: list[dict[str, Any]] = [
        {},
        {"causal": "none"},
        {"window_left": 2},
        {"window_left": 3},
        {"scale": 0.25},
        {"softcap": 20.0},
        {"qk_norm_epsilon": 1e-3},
        {"qk_norm": "l2"},
        {},
    ]
    models: list[tuple[Path, dict[str, tuple[int, ...]]]] = []
    for i, change in enumerate(changes):
        signature = case_signature(_half_case(**change), presents=False, dynamic=False)
        model = to_form(attention_model(signature, None, 24), "native", runtime="tensorrt")
        models.append((save_model(model, tmp_path / f"{i}.onnx"), {}))
    digests = [build.digest for build in build_engines(models)]
    assert all(digests)
    assert digests[0] == digests[-1], "equal models give equal engines"
    assert len(set(digests)) == len(changes) - 1


def _masked_attention(mask: torch.Tensor, **changes: Any) -> ir.Node:
    case = _half_case(**changes)
    masked = AttentionCase(case.spec, {**case.inputs, "attn_mask": mask})
    function = lower(case_signature(masked, presents=False, dynamic=False), "tensorrt", 24)
    (node,) = [node for node in function.all_nodes() if node.op_type == "Attention"]
    return node


def test_masks_reach_attention_in_the_type_of_the_queries() -> None:
    mask = _masked_attention(torch.randn(6, 6), causal="none").inputs[3]
    assert mask is not None
    cast = mask.producer()
    assert cast is not None
    assert cast.op_type == "Cast"
    assert cast.attributes.get_int("to") == ir.DataType.FLOAT16


def test_a_causal_triangle_is_merged_into_a_mask() -> None:
    node = _masked_attention(torch.rand(6, 6) > 0.4, causal="upper_left")
    assert not node.attributes.get_int("is_causal", 0)
    assert node.inputs[3] is not None
    merged = node.inputs[3].producer()
    assert merged is not None
    assert merged.op_type == "And"


@pytest.mark.parametrize("kind", ["bool", "additive"])
def test_rows_that_see_nothing_are_zeroed_after_attention(kind: str) -> None:
    # ONNX Runtime's kernel does it too, so only the structure can be tested here.
    mask = torch.randn(6, 6) if kind == "additive" else torch.rand(6, 6) > 0.4
    (use,) = _masked_attention(mask).outputs[0].uses()
    assert use.node.op_type == "Where"
    assert use.idx == 1


def test_finite_float32_masks_stay_finite_in_float16() -> None:
    case = _half_case(causal="none")
    mask = torch.zeros(6, 6)
    mask[1] = torch.finfo(torch.float32).min
    mask[2] = -torch.inf
    masked = AttentionCase(case.spec, {**case.inputs, "attn_mask": mask})
    results = run_body(masked, 24, runtime="tensorrt")
    assert_like_reference(masked, results, rounds_inside=True)
    output = results["output"].reshape(2, 6, 4, 64)
    assert (output[:, 2] == 0).all()
    assert (output[:, 1] != 0).any(-1).all()


def test_rotary_caches_are_read_once_for_queries_and_keys() -> None:
    case = _half_case(rotary="after_norm")
    caches = {name: torch.randn(11, 32).half() for name in ("cos_cache", "sin_cache")}
    inputs = {**case.inputs, **caches, "position_ids": torch.arange(6)[None]}
    with_rope = AttentionCase(case.spec, inputs)
    function = lower(case_signature(with_rope, presents=False, dynamic=False), "tensorrt", 24)
    gathers = [node for node in function.all_nodes() if node.op_type == "Gather"]
    assert [node.inputs[1].name for node in gathers if node.inputs[1]] == ["position_ids"] * 2
