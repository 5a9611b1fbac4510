"""Integers and booleans are equal or they are not."""

from __future__ import annotations

import dataclasses
import math

import torch

from qkexport.compare.results import OutputComparison, Status, WorstElement
from qkexport.compare.scan import as_rows, unravel


def judge_exact(
    known: OutputComparison, candidate: torch.Tensor, oracle: torch.Tensor
) -> OutputComparison:
    wrong = candidate.to(torch.int64) != oracle.to(torch.int64)
    rows = as_rows(wrong).any(dim=1)
    if not wrong.any():
        return dataclasses.replace(known, num_rows=len(rows), derivation="exact")
    flat = int(wrong.flatten().to(torch.int8).argmax())
    got, exact = candidate.flatten()[flat].item(), oracle.flatten()[flat].item()
    index = unravel(flat, known.shape)
    difference = float((candidate.to(torch.int64) - oracle.to(torch.int64)).abs().max())
    return dataclasses.replace(
        known,
        status=Status.MISMATCHED,
        detail=f"{int(wrong.sum())} of {wrong.numel()} integers differ",
        max_abs_error=difference,
        worst=WorstElement(index, got, exact, None, abs(got - exact), 0.0),
        usage=math.inf,
        derivation="exact",
        rows_failed=int(rows.sum()),
        num_rows=len(rows),
    )
