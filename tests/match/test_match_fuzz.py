"""Random graphs: whatever fuses computes what it computed before, at other sizes too.

Graphs without a mutation must fuse. Mutants may fuse only where the mutation changes nothing.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from fused_model import fuse, run
from graphs import NEVER_FUSED, Plan, build, draw, feeds, sizes_of

_QUICK, _NIGHTLY, _CHUNK = 240, 2400, 40


def _check_same(plan: Plan, seed: int) -> int:
    """Number of fused attentions, after comparing both models."""
    proto = build(plan, seed)
    model = ir.from_proto(proto)
    fused = fuse(model)
    if not fused.report.fused:
        assert fused.report.found == 1, "an attention with a norm is not listed"
        return 0
    for change in (0, 2) if plan.dynamic else (0,):
        inputs = feeds(proto, sizes_of(plan, change), seed)
        for before, after in zip(run(model, inputs), run(fused.model, inputs), strict=True):
            np.testing.assert_allclose(after, before, rtol=0, atol=2e-5, err_msg=f"{seed}: {plan}")
    return fused.report.fused


def _check_fuses(seed: int) -> None:
    plan = draw(seed, mutate=False)
    fused = _check_same(plan, seed)
    assert fused == (0 if plan.epsilons_cannot_agree else 1), f"{seed}: {plan}"


def _check_mutant(seed: int) -> None:
    plan = draw(seed, mutate=True)
    fused = _check_same(plan, seed)
    if plan.mutation in NEVER_FUSED:
        assert not fused, f"{seed}: {plan}"


@pytest.mark.parametrize("start", range(0, _QUICK // 2, _CHUNK))
def test_random_graphs_fuse_and_stay_equal(start: int) -> None:
    for seed in range(start, start + _CHUNK):
        _check_fuses(seed)


@pytest.mark.parametrize("start", range(0, _QUICK // 2, _CHUNK))
def test_mutants_never_fuse_wrongly(start: int) -> None:
    for seed in range(start, start + _CHUNK):
        _check_mutant(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(10_000, 10_000 + _NIGHTLY // 2, _CHUNK))
def test_many_random_graphs_fuse_and_stay_equal(start: int) -> None:
    for seed in range(start, start + _CHUNK):
        _check_fuses(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(10_000, 10_000 + _NIGHTLY // 2, _CHUNK))
def test_many_mutants_never_fuse_wrongly(start: int) -> None:
    for seed in range(start, start + _CHUNK):
        _check_mutant(seed)
