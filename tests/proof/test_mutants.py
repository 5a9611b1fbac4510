"""Each mutant is an error: it changes what is computed wherever it says it applies."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from one_attention import attention_inputs, one_attention

from qkexport.interpret import Interpreter
from qkexport.proof.mutants import MUTANTS, Site
from qkexport.spec import AttentionSpec

NAMED = (
    "swap-heads", "drop-mask", "drop-norm", "epsilon-x1000", "causal-off-by-one", "gqa-tiled",
    "gain-off-by-one", "rope-order", "float16-statistics", "scale-default",
)  # fmt: skip


def _angles(width: int = 4) -> dict[str, Any]:
    angles = torch.arange(5)[:, None] * 0.7 ** torch.arange(width)
    rows = angles.expand(2, 5, width)
    return {"cos_cache": rows.cos(), "sin_cache": rows.sin()}


def _gains(*shape: int) -> dict[str, Any]:
    torch.manual_seed(1)
    return {name: 1 + 0.3 * torch.randn(shape) for name in ("q_norm_weight", "k_norm_weight")}


def _biases() -> dict[str, Any]:
    return {name: torch.randn(8) for name in ("q_norm_bias", "k_norm_bias")}


Case = tuple[AttentionSpec, dict[str, torch.Tensor]]


def _case(num_kv_heads: int = 2, rank: int = 3, spec: Any = None, **inputs: Any) -> Case:
    heads = {"num_heads": 4, "num_kv_heads": num_kv_heads, "scale": 0.5}
    return (
        AttentionSpec(**{**heads, **(spec or {})}),
        attention_inputs(4, num_kv_heads, rank=rank, **inputs),
    )


CASES: dict[str, Case] = {
    "rope and gains": _case(spec={"rotary": "after_norm"}, **_angles(), **_gains(8)),
    "rope first, rank 4": _case(rank=4, spec={"rotary": "before_norm"}, **_angles(), **_gains(8)),
    "layer with bias": _case(4, spec={"qk_norm": "layer"}, **_gains(8), **_biases()),
    "gain per head": _case(4, rank=4, **_gains(4, 8)),
    "whole width": _case(4, spec={"norm_axis": "hidden"}, **_gains(32)),
    "cosine with temperature": _case(
        4,
        rank=4,
        spec={"qk_norm": "l2", "scale": 1.0, "qk_norm_epsilon": 1.0},
        head_scale=torch.tensor([3.0, 5.0, 7.0, 9.0]),
        attn_mask=torch.randn(1, 4, 5, 5),
    ),
    "causal": _case(spec={"causal": "upper_left"}),
    "bool mask": _case(attn_mask=torch.ones(5, 5, dtype=torch.bool).tril()),
    "window and softcap": _case(spec={"window_left": 1, "softcap": 2.0, "scale": 8**-0.5}),
}


def _outputs(case: Case, name: str) -> tuple[torch.Tensor, torch.Tensor] | None:
    """What the attention and its mutant compute in float32; None where it does not apply."""
    spec, inputs = case
    model, _ = one_attention(spec, inputs)
    right = Interpreter(model, exact=False).run(inputs)["output"]
    changed, node = one_attention(spec, inputs)
    if not MUTANTS[name].edit(Site(changed, node)):
        return None
    wrong = Interpreter(changed, exact=False).run(inputs)
    return right, next(iter(wrong.values()))


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_applies_somewhere_and_computes_something_else_there(name: str) -> None:
    applied = {label: _outputs(case, name) for label, case in CASES.items()}
    effects = {
        label: float((pair[1] - pair[0]).abs().max())
        for label, pair in applied.items()
        if pair is not None
    }
    assert effects
    least = 2e-5 if MUTANTS[name].rounding or name == "epsilon-x1000" else 1e-3
    assert all(effect > least for effect in effects.values()), effects


def test_at_least_twenty_mutants_and_all_the_usual_errors_are_among_them() -> None:
    assert set(NAMED) <= set(MUTANTS)
    assert len(MUTANTS) >= 20
    assert all(mutant.description for mutant in MUTANTS.values())


def _applies(name: str, case: Case) -> bool:
    return _outputs(case, name) is not None


@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("swap-heads", (AttentionSpec(num_heads=1, num_kv_heads=1, scale=1.0),
                        attention_inputs(1, 1))),
        ("gqa-tiled", CASES["layer with bias"]),
        ("gqa-tiled", _case(1)),
        ("drop-mask", CASES["rope and gains"]),
        ("causal-off-by-one", CASES["rope and gains"]),
        ("gain-off-by-one", CASES["causal"]),
        ("gain-off-by-one", _case(q_norm_weight=torch.full((8,), 2.0))),
        ("drop-gain", _case(q_norm_weight=torch.ones(8))),
        ("swap-gains", CASES["gain per head"]),
        ("rope-order", _case(spec={"rotary": "after_norm"}, **_angles())),
        ("rope-pairs", CASES["causal"]),
        ("rope-keys-shifted", CASES["causal"]),
        ("drop-bias", CASES["causal"]),
        ("drop-temperature", CASES["causal"]),
        ("epsilon-x1000", _case(spec={"qk_norm_epsilon": 0.0})),
    ],
)  # fmt: skip
def test_a_mutant_does_not_apply_where_it_would_be_no_error(name: str, case: Case) -> None:
    assert not _applies(name, case)


def test_a_tiled_group_reads_head_h_mod_hkv() -> None:
    pair = _outputs(CASES["causal"], "gqa-tiled")
    assert pair is not None
    spec, inputs = CASES["causal"]
    key, value = (inputs[name].reshape(2, 5, 2, 8) for name in ("key", "value"))
    tiled = {
        **inputs,
        "key": key[:, :, [0, 1, 0, 1]].flatten(2),
        "value": value[:, :, [0, 1, 0, 1]].flatten(2),
    }
    model, _ = one_attention(
        AttentionSpec(num_heads=4, num_kv_heads=4, scale=0.5, causal=spec.causal), tiled
    )
    expected = Interpreter(model, exact=False).run(tiled)["output"]
    assert torch.equal(pair[1], expected)


def test_dropping_the_norm_leaves_plain_products() -> None:
    pair = _outputs(_case(4, rank=4), "drop-norm")
    assert pair is not None
    _, inputs = _case(4, rank=4)
    expected = torch.nn.functional.scaled_dot_product_attention(
        inputs["query"], inputs["key"], inputs["value"], scale=0.5
    )
    torch.testing.assert_close(pair[1], expected, rtol=1e-4, atol=1e-4)


def test_float16_statistics_err_like_float16() -> None:
    pair = _outputs(CASES["rope and gains"], "float16-statistics")
    assert pair is not None
    effect = float((pair[1] - pair[0]).abs().max())
    assert 1e-5 < effect < 2e-3
    assert math.isfinite(effect)
