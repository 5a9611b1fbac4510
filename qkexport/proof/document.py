"""A parity result as the JSON document whose schema is published."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from qkexport.compare.kinds import KIND_NAMES, KindTable
from qkexport.compare.results import OutputComparison, WorstElement

if TYPE_CHECKING:
    from qkexport.proof.results import CandidateResult, CaseResult, ParityResult

DOCUMENT_FORMAT: Final = "qkexport-parity-1"


def parity_document(result: ParityResult) -> dict[str, Any]:
    """The document; numbers that JSON cannot say are null."""
    return {
        "format": DOCUMENT_FORMAT,
        "passed": bool(result),
        "reference": result.reference,
        "suite": result.suite,
        "seed": result.seed,
        "candidates": [
            {**_candidate(candidate), "tier": result.tier(candidate)}
            for candidate in result.candidates
        ],
        "pairs": [
            {
                "left": pair.left,
                "right": pair.right,
                "output": pair.output,
                "max_abs_difference": _number(pair.max_abs_difference),
            }
            for pair in result.pairs
        ],
        "skipped_cases": list(result.skipped_cases),
        "absent_backends": list(result.absent),
        "environment": dict(result.environment),
        "seconds": {name: round(value, 6) for name, value in result.seconds.items()},
    }


def _candidate(candidate: CandidateResult) -> dict[str, Any]:
    return {
        "name": candidate.name,
        "backend": candidate.backend,
        "verdict": str(candidate.verdict),
        "evidence": str(candidate.evidence),
        "reason": candidate.reason,
        "untested_outputs": list(candidate.untested),
        "notes": list(candidate.notes),
        "cases": [_case(case) for case in candidate.cases],
        "localization": None
        if candidate.localization is None
        else candidate.localization.to_dict(),
    }


def _case(case: CaseResult) -> dict[str, Any]:
    return {
        "label": case.label,
        "passed": bool(case),
        "seed": case.seed,
        "shapes": {name: list(shape) for name, shape in case.shapes.items()},
        "seconds": round(case.seconds, 6),
        "error": case.error,
        "replay": case.replay,
        "outputs": [_output(output, case.vacuous.get(output.name, "")) for output in case.outputs],
    }


def _output(output: OutputComparison, vacuous: str) -> dict[str, Any]:
    argmax = output.argmax
    return {
        "name": output.name,
        "status": str(output.status),
        "detail": output.detail,
        "tests_nothing": vacuous,
        "dtype": output.dtype,
        "shape": list(output.shape),
        "max_abs_error": _number(output.max_abs_error),
        "max_rel_error": _number(output.max_rel_error),
        "pytorch_error": None if output.baseline_error is None else _number(output.baseline_error),
        "usage": _number(output.usage),
        "needed_factor": _number(output.needed_factor),
        "tolerance": output.derivation,
        "noise_measured": output.noise_measured,
        "cosine": _number(output.cosine),
        "ulp_histogram": list(output.ulps),
        "rows_failed": output.rows_failed,
        "num_rows": output.num_rows,
        "head_usage": None
        if output.head_usage is None
        else [_number(usage) for usage in output.head_usage],
        "worst": None if output.worst is None else _worst(output.worst),
        "non_finite": None if output.kinds is None else _kinds(output.kinds),
        "argmax": None
        if argmax is None
        else {
            "rows": argmax.rows,
            "agree": argmax.agree,
            "near_ties": argmax.near_ties,
            "smallest_margin": _number(argmax.smallest_margin),
        },
    }


def _worst(worst: WorstElement) -> dict[str, Any]:
    return {
        "index": list(worst.index),
        "head": worst.head,
        "candidate": _text(worst.candidate),
        "oracle": _text(worst.oracle),
        "pytorch": None if worst.baseline is None else _text(worst.baseline),
        "error": _number(worst.error),
        "allowed": _number(worst.allowed),
    }


def _kinds(kinds: KindTable) -> dict[str, Any]:
    """Only the meetings that happened, as `oracle->candidate`."""
    met = {
        f"{KIND_NAMES[i]}->{KIND_NAMES[j]}": count
        for i, row in enumerate(kinds.counts)
        for j, count in enumerate(row)
        if count and (i or j)
    }
    return {"met": met, "misplaced": kinds.misplaced, "pytorch_faults": kinds.reference_faults}


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _text(value: float) -> float | str:
    """Values of tensors may be non-finite, and which one matters."""
    return float(value) if math.isfinite(value) else str(value)
