"""Right conversions never fail: every suite, every type, many seeds."""

from __future__ import annotations

import atexit
import dataclasses
import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from qk_norm_models import (
    VOCABULARY,
    WIDTH,
    GroupedQueries,
    LearnedScale,
    MaskedAttention,
    VisionAttention,
)
from torch import nn

from qkexport.conversion import convert
from qkexport.load import TorchSource
from qkexport.proof.parity import parity
from qkexport.proof.results import CandidateResult, Verdict
from qkexport.run.program import load_program

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MODELS: dict[str, type[nn.Module]] = {
    "layer norm": VisionAttention,
    "rms norm, mask": MaskedAttention,
    "rms norm, grouped": GroupedQueries,
    "cosine": LearnedScale,
}


def _inputs(module: nn.Module, dtype: torch.dtype) -> tuple[tuple[torch.Tensor, ...], Any]:
    batch, length = torch.export.Dim("batch", max=16), torch.export.Dim("length", max=48)
    if isinstance(module, MaskedAttention):
        args = (torch.randint(0, VOCABULARY, (2, 9)), torch.ones(2, 1, 9, 9, dtype=torch.bool))
        return args, ({0: batch, 1: length}, {0: batch, 2: length, 3: length})
    return (torch.randn(2, 9, WIDTH).to(dtype),), ({0: batch, 1: length},)


@functools.cache
def _converted(name: str, dtype: torch.dtype) -> tuple[TorchSource, Path]:
    torch.manual_seed(3)
    module = MODELS[name]().to(dtype).eval()
    args, shapes = _inputs(module, dtype)
    source = TorchSource(name, module, args, {}, shapes)
    folder = tempfile.TemporaryDirectory(prefix="alarms-")
    atexit.register(folder.cleanup)
    path = Path(folder.name) / "model.onnx"
    assert convert(source, path, verify=False).fused == 1
    # traced once for all seeds
    return dataclasses.replace(source, program=load_program(source).exported), path


def _alarms(
    name: str, dtype: torch.dtype, suite: str, seeds: range, backends: Sequence[str]
) -> list[str]:
    source, path = _converted(name, dtype)
    found = []
    for seed in seeds:
        result = parity(source, [path], backends=backends, suite=suite, seed=seed)
        for candidate in result.candidates:
            if candidate.skipped:
                pytest.skip(candidate.reason)
            found += [f"seed {seed}, {alarm}" for alarm in _alarms_of(candidate)]
    return found


def _alarms_of(candidate: CandidateResult) -> list[str]:
    alarms = [
        f"{candidate.backend}, {case.label}: {output.status} {output.usage:.3g}"
        for case in candidate.cases
        for output in case.failures
    ]
    if not alarms and candidate.verdict is not Verdict.MATCHED:
        alarms.append(f"{candidate.backend}: {candidate.verdict} {candidate.reason}")
    return alarms


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_right_conversion_passes_the_full_suite(name: str, dtype: torch.dtype) -> None:
    assert _alarms(name, dtype, "full", range(1), ["ort-stock"]) == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("backend", ["ort", "plugin"])
def test_a_right_conversion_passes_on_our_kernels(backend: str, dtype: torch.dtype) -> None:
    source, path = _converted("rms norm, mask", dtype)
    result = parity(source, [path], backends=[backend], seed=1)
    (candidate,) = result.candidates
    if candidate.skipped:
        pytest.skip(candidate.reason)
    assert candidate.verdict is Verdict.MATCHED, candidate.reason


@pytest.mark.nightly
@pytest.mark.parametrize("suite", ["quick", "full"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_a_right_conversion_passes_with_fifty_seeds(
    name: str, dtype: torch.dtype, suite: str
) -> None:
    assert _alarms(name, dtype, suite, range(50), ["ort-stock", "ort"]) == []
