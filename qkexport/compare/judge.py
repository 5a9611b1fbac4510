"""Judges one output against the oracle."""

from __future__ import annotations

import dataclasses
import math

import torch

from qkexport.compare.argmax import argmax_agreement
from qkexport.compare.exact import judge_exact
from qkexport.compare.expectation import Expectation
from qkexport.compare.heads import by_head, head_axis, head_usage, heat
from qkexport.compare.kinds import wrong_kind
from qkexport.compare.results import OutputComparison, Status, WorstElement
from qkexport.compare.scan import Scan, as_rows, scan, unravel
from qkexport.compare.tolerance import (
    BASELINE_FACTOR,
    RowErrors,
    Tolerance,
    allowed_errors,
)
from qkexport.compare.vacuity import is_constant, why_vacuous


def judge(
    name: str,
    candidate: torch.Tensor,
    expected: Expectation,
    tolerance: Tolerance,
    *,
    vacuous_fails: bool = True,
) -> OutputComparison:
    """Compares one output with what is expected of it.

    Args:
        name: Name in the report.
        candidate: Values to judge.
        expected: Oracle, PyTorch's own values and noise.
        tolerance: Derived or given.
        vacuous_fails: An oracle that is empty, constant or nowhere finite tests nothing, and
            fails. False when other inputs test the same output.
    """
    dtype, shape = str(candidate.dtype).removeprefix("torch."), tuple(candidate.shape)
    known = OutputComparison(name, Status.MATCHED, dtype=dtype, shape=shape)
    oracle = expected.oracle
    if shape != tuple(oracle.shape):
        detail = f"shape must be {list(oracle.shape)}, got {list(shape)}"
        return dataclasses.replace(known, status=Status.WRONG_SHAPE, detail=detail)
    if candidate.is_floating_point() != oracle.is_floating_point():
        detail = f"type must be {oracle.dtype}, got {candidate.dtype}"
        return dataclasses.replace(known, status=Status.WRONG_DTYPE, detail=detail)
    reason = why_vacuous(oracle)
    if reason and vacuous_fails:
        return dataclasses.replace(known, status=Status.VACUOUS, detail=f"the reference {reason}")
    if not candidate.numel():
        return dataclasses.replace(known, detail="empty")
    if not candidate.is_floating_point():
        return judge_exact(known, candidate, oracle)
    if expected.num_heads:
        candidate, expected = by_head(candidate, expected)
    return _judge_values(known, candidate, expected, tolerance, constant=bool(reason))


def _judge_values(
    known: OutputComparison,
    candidate: torch.Tensor,
    expected: Expectation,
    tolerance: Tolerance,
    *,
    constant: bool,
) -> OutputComparison:
    oracle, baseline = expected.oracle, expected.baseline
    found = scan(candidate, oracle, baseline, tolerance)
    rows = RowErrors(found.error, found.baseline_error, found.magnitude, expected.noise)
    allowed = allowed_errors(rows, tolerance, candidate.dtype)
    usage = _usage(found, allowed)
    usage = torch.where(found.misplaced > 0, torch.inf, usage)
    failed = usage > 1
    status, detail = _verdict(found, failed, candidate, baseline, constant=constant)
    blind = not tolerance.given and bool((allowed >= found.magnitude).all())
    cells, positions = heat(usage, candidate, expected)
    result = dataclasses.replace(
        known,
        status=status,
        detail=detail,
        max_abs_error=float(found.error.max()),
        max_rel_error=found.max_relative_error,
        baseline_error=None if baseline is None else float(found.baseline_error.max()),
        worst=_worst(found, usage, allowed, candidate, expected),
        usage=float(usage.max()),
        derivation=tolerance.describe(candidate.dtype),
        noise_measured=expected.noise is not None,
        needed_factor=_needed_factor(rows, allowed),
        cosine=found.cosine,
        ulps=found.ulps,
        kinds=found.kinds,
        rows_failed=int(failed.sum()),
        num_rows=len(usage),
        head_usage=head_usage(usage, candidate, expected),
        heat=cells,
        heat_positions=positions,
        blind=blind,
    )
    if not expected.logits:
        return result
    error = torch.where(found.misplaced > 0, torch.inf, found.error)
    return _with_argmax(result, candidate, oracle, error, allowed)


def _usage(found: Scan, allowed: torch.Tensor) -> torch.Tensor:
    """Error over allowance, `[num_rows]`; infinite where anything else than 0 was forbidden."""
    usage = torch.where(found.error > 0, found.error / allowed, 0.0)
    given = torch.isfinite(found.excess)
    if given.any():  # the user's tolerance is judged element by element
        over = torch.maximum(usage, torch.full_like(usage, math.nextafter(1.0, 2.0)))
        usage = torch.where(found.excess > 0, over, usage.clamp_max(1.0))
    return usage


def _verdict(
    found: Scan,
    failed: torch.Tensor,
    candidate: torch.Tensor,
    baseline: torch.Tensor | None,
    *,
    constant: bool,
) -> tuple[Status, str]:
    excused = baseline is not None and is_constant(baseline)
    if candidate.numel() > 1 and not constant and is_constant(candidate) and not excused:
        value = candidate.flatten()[0].item()
        return Status.DEGENERATE, f"is {value:g} everywhere, the reference is not"
    if found.kinds.misplaced:
        count = f"{found.kinds.misplaced} of {candidate.numel()} elements"
        return Status.NON_FINITE, f"{count} are NaN or infinite where the reference is not, or not"
    if failed.any():
        return Status.MISMATCHED, f"{int(failed.sum())} of {len(failed)} rows exceed their limit"
    if found.kinds.reference_faults:
        return Status.MATCHED, f"PyTorch is not finite at {found.kinds.reference_faults} elements"
    return Status.MATCHED, ""


def _worst(
    found: Scan,
    usage: torch.Tensor,
    allowed: torch.Tensor,
    candidate: torch.Tensor,
    expected: Expectation,
) -> WorstElement:
    row = int((found.misplaced if found.kinds.misplaced else usage).argmax())
    column = _worst_column(row, candidate, expected)
    got = as_rows(candidate)[row, column].item()
    exact = as_rows(expected.oracle)[row, column].item()
    baseline = None
    if expected.baseline is not None:
        baseline = as_rows(expected.baseline)[row, column].item()
    shape = tuple(candidate.shape)
    index = unravel(row * (shape[-1] if shape else 1) + column, shape)
    head = head_axis(candidate, expected)
    at_head = None if head is None else index[head]
    if expected.num_heads:  # back to the output's own shape
        index = (*index[:-2], index[-2] * shape[-1] + index[-1])
    error = abs(got - exact)
    return WorstElement(index, got, exact, baseline, error, float(allowed[row]), at_head)


def _worst_column(row: int, candidate: torch.Tensor, expected: Expectation) -> int:
    """The first element of a wrong kind in a row, else the one with the largest error."""
    got, exact = as_rows(candidate)[row], as_rows(expected.oracle)[row]
    own = None if expected.baseline is None else as_rows(expected.baseline)[row]
    wrong = wrong_kind(exact, got, own)
    if wrong.any():
        return int(wrong.to(torch.int8).argmax())
    return int((got.double() - exact).abs().nan_to_num(nan=0.0, posinf=0.0).argmax())


def _needed_factor(rows: RowErrors, allowed: torch.Tensor) -> float:
    """The factor on PyTorch's error at which every row would pass; inf where it errs by nothing."""
    over = (rows.candidate - allowed).clamp_min(0)
    needed = torch.where(over > 0, BASELINE_FACTOR + over / rows.baseline, BASELINE_FACTOR)
    return float(needed.max())


def _with_argmax(
    result: OutputComparison,
    candidate: torch.Tensor,
    oracle: torch.Tensor,
    error: torch.Tensor,
    allowed: torch.Tensor,
) -> OutputComparison:
    agreement = argmax_agreement(candidate, oracle, error, allowed)
    result = dataclasses.replace(result, argmax=agreement)
    if result.status is Status.MATCHED and agreement.near_ties:
        detail = f"argmax of {agreement.near_ties} of {agreement.rows} rows is a near tie"
        return dataclasses.replace(result, status=Status.AMBIGUOUS, detail=detail)
    return result
