"""Random modules, exported: they fuse, and compute what PyTorch computes at other sizes too."""

from __future__ import annotations

import pytest
import torch
from fused_model import fuse
from graphs import Plan, draw
from torch_modules import TorchAttention
from zoo.export import export_model, export_program, resized, worst_error
from zoo.family import Sample

_OPSETS = (20, 23, 24)


def _sample(plan: Plan) -> Sample:
    args = [torch.randn(plan.batch, plan.query_tokens + 2, 10)]
    lengths = ["tokens"]
    if plan.key_tokens != plan.query_tokens:
        args.append(torch.randn(plan.batch, plan.key_tokens + 2, 10))
        lengths.append("keys")
    shapes = None
    if plan.dynamic and plan.batch > 1:
        batch = torch.export.Dim("batch")
        shapes = tuple({0: batch, 1: torch.export.Dim(name)} for name in lengths)
    return Sample(TorchAttention(plan).eval(), tuple(args), {}, shapes)


def _check(seed: int) -> None:
    plan = draw(seed, mutate=False)
    torch.manual_seed(seed)
    sample = _sample(plan)
    fused = fuse(export_model(export_program(sample), _OPSETS[seed % 3]))
    different = plan.norm == "l2_sum" and plan.layout == "hidden" and plan.heads != plan.kv_heads
    assert fused.report.found == 1
    assert fused.report.fused == (0 if different else 1), f"{plan}: {fused.report}"
    for change in ({}, {"batch": 1, "tokens": 3, "keys": 2}):
        assert worst_error(fused, resized(sample, change)) < 1e-5, str(plan)


@pytest.mark.parametrize("seed", range(12))
def test_random_modules_fuse_and_stay_equal(seed: int) -> None:
    _check(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_random_modules_fuse_and_stay_equal(seed: int) -> None:
    _check(seed)
