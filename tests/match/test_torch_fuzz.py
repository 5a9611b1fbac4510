"""Random modules, exported: they fuse, and compute what PyTorch computes at other sizes too.

Several modules share one export, which takes longer than all they compute.
"""

from __future__ import annotations

import functools

import pytest
import torch
from fused_model import fuse
from graphs import NEVER_FUSED, Plan, draw
from torch import nn
from torch_modules import MUTATIONS, TorchAttention
from zoo.export import export_model, export_program, resized, worst_error
from zoo.family import Sample

from qkexport.match import NearMiss

_OPSETS = (20, 23, 24)
_TOGETHER = 8
_NIGHTLY = 1600, 480  # modules, mutants


class _SideBySide(nn.Module):
    """Attentions that have nothing to do with each other."""

    def __init__(self, plans: list[Plan]) -> None:
        super().__init__()
        self.attentions = [TorchAttention(plan) for plan in plans]
        self.registered = nn.ModuleList(self.attentions)

    def forward(self, *args: torch.Tensor) -> tuple[torch.Tensor, ...]:
        rest = list(args)
        outputs = []
        for attention in self.attentions:
            own = [rest.pop(0) for _ in range(attention.num_inputs)]
            outputs.append(attention(*own))
        return tuple(outputs)


def _sample(plans: list[Plan]) -> Sample:
    args: list[torch.Tensor] = []
    shapes: list[dict[int, torch.export.Dim] | None] = []
    for i, plan in enumerate(plans):
        lengths = {"tokens": plan.query_tokens}
        if plan.key_tokens != plan.query_tokens:
            lengths["keys"] = plan.key_tokens
        batch = torch.export.Dim(f"batch{i}")
        for name, length in lengths.items():
            args.append(torch.randn(plan.batch, length + 2, 10))
            axes = {0: batch, 1: torch.export.Dim(f"{name}{i}")}
            shapes.append(axes if plan.dynamic and plan.batch > 1 else None)
    module = _SideBySide(plans).eval()
    return Sample(module, tuple(args), {}, {"args": tuple(shapes)})


def _check(start: int, *, mutate: bool) -> None:
    seeds = range(start, start + _TOGETHER)
    plans = [draw(seed, mutate=mutate, mutations=MUTATIONS) for seed in seeds]
    torch.manual_seed(start)
    sample = _sample(plans)
    fused = fuse(export_model(export_program(sample), _OPSETS[start // _TOGETHER % 3]))
    found = [item for item in fused.report.attentions if item.has_norm]
    assert len(found) == len(plans)
    for seed, plan, item in zip(seeds, plans, found, strict=True):
        reason = item.reason if isinstance(item, NearMiss) else None
        if not mutate:
            assert (reason is None) != plan.epsilons_cannot_agree, f"{seed}: {reason} {plan}"
        elif plan.mutation in NEVER_FUSED:
            assert reason is not None, f"{seed}: {plan}"
    for change in ({}, {"batch": 1, "tokens": 3, "keys": 2}):
        assert worst_error(fused, resized(sample, change)) < 1e-5, f"one of {seeds}"


_fuses = functools.partial(_check, mutate=False)
_stays_equal = functools.partial(_check, mutate=True)


@pytest.mark.parametrize("start", range(0, 2 * _TOGETHER, _TOGETHER))
def test_random_modules_fuse_and_stay_equal(start: int) -> None:
    _fuses(start)


@pytest.mark.parametrize("start", [0])
def test_mutants_of_modules_never_fuse_wrongly(start: int) -> None:
    _stays_equal(start)


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(1000, 1000 + _NIGHTLY[0], _TOGETHER))
def test_many_random_modules_fuse_and_stay_equal(start: int) -> None:
    _fuses(start)


@pytest.mark.nightly
@pytest.mark.parametrize("start", range(5000, 5000 + _NIGHTLY[1], _TOGETHER))
def test_many_mutants_of_modules_never_fuse_wrongly(start: int) -> None:
    _stays_equal(start)
