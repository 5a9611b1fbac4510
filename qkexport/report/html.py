"""A report in one HTML file: no scripts, nothing fetched, readable when printed."""

from __future__ import annotations

import math
from typing import Any, Final

from qkexport.compare import OutputComparison, Status
from qkexport.compare.kinds import KIND_NAMES, KindTable
from qkexport.compare.ulp import HISTOGRAM_LABELS
from qkexport.proof.layers.results import LayerVerdict
from qkexport.proof.results import CandidateResult, ParityResult, Verdict
from qkexport.report.heat_map import HEAT_STEPS, heat_map
from qkexport.report.terminal import where
from qkexport.report.text import number, percent
from qkexport.templates import template_environment

_TONES: Final = {Verdict.MATCHED: "good", Verdict.SKIPPED: "warn"}
_STATUS_TONES: Final = {Status.MATCHED: "good", Status.AMBIGUOUS: "warn"}
_LAYER_TONES: Final = {LayerVerdict.MATCHED: "good", LayerVerdict.INHERITED: "warn"}


def html_report(result: ParityResult) -> str:
    """The result as an HTML page."""
    environment = template_environment("qkexport.report")
    environment.globals["heat_steps"] = HEAT_STEPS
    environment.filters |= {
        "bars": histogram_bars,
        "case_cell": case_cell,
        "case_labels": case_labels,
        "heat": heat_map,
        "kinds": kind_rows,
        "layer_tone": lambda verdict: _LAYER_TONES.get(verdict, "bad"),
        "number": number,
        "percent": percent,
        "share": lambda usage: min(1.0, max(0.0, usage)) if usage == usage else 1.0,
        "status_tone": lambda status: _STATUS_TONES.get(status, "bad"),
        "tone": lambda verdict: _TONES.get(verdict, "bad"),
        "totals": totals,
        "where": where,
    }
    page: str = environment.get_template("parity.html.j2").render(result=result)
    return page


def totals(result: ParityResult) -> dict[str, Any]:
    """The numbers on top of the page."""
    cases = [case for candidate in result.candidates for case in candidate.cases]
    outputs = [output for case in cases for output in case.outputs]
    return {
        "matched": sum(map(bool, result.candidates)),
        "candidates": len(result.candidates),
        "passed": sum(map(bool, cases)),
        "cases": len(cases),
        "outputs": sum(output.num_rows > 0 for output in outputs),
        "usage": max((output.usage for output in outputs), default=0.0),
        "seconds": sum(result.seconds.values()),
    }


def case_labels(result: ParityResult) -> list[str]:
    """Labels of all cases, in the order of the run."""
    return list(
        dict.fromkeys(case.label for candidate in result.candidates for case in candidate.cases)
    )


def case_cell(candidate: CandidateResult, label: str) -> dict[str, str]:
    """One candidate on one case: a colour and a few letters."""
    case = next((case for case in candidate.cases if case.label == label), None)
    if case is None:
        return {"tone": "", "text": "not run"}
    if case.error:
        return {"tone": "bad", "text": "failed"}
    failed = [output.status for output in case.failures if output.status is not Status.MISMATCHED]
    text = str(failed[0]) if failed else percent(max(output.usage for output in case.outputs))
    return {"tone": "good" if case else "bad", "text": text}


def histogram_bars(output: OutputComparison) -> list[dict[str, Any]]:
    """Bars of the ulp histogram: height in 0..1 by the logarithm of the count."""
    largest = math.log1p(max(output.ulps, default=0)) or 1.0
    return [
        {
            "label": label,
            "count": count,
            "short": _short(count),
            "height": round(math.log1p(count) / largest, 4),
        }
        for label, count in zip(HISTOGRAM_LABELS, output.ulps, strict=False)
    ]


def _short(count: int) -> str:
    for unit, name in ((10**6, "M"), (10**3, "k")):
        if count >= unit:
            return f"{count / unit:.3g}{name}"
    return str(count)


def kind_rows(kinds: KindTable) -> list[tuple[str, tuple[int, ...]]]:
    """The table of kinds by name, or nothing when all is finite."""
    if all(
        not count for i, row in enumerate(kinds.counts) for j, count in enumerate(row) if i or j
    ):
        return []
    return list(zip(KIND_NAMES, kinds.counts, strict=True))
