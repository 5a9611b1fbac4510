"""Markdown for a CI system's job summary."""

from __future__ import annotations

from qkexport.proof.results import CandidateResult, ParityResult, Verdict
from qkexport.report.terminal import where
from qkexport.report.text import number, percent

_MARKS = {
    Verdict.MATCHED: "✅",
    Verdict.MISMATCHED: "❌",
    Verdict.FAILED: "❌",
    Verdict.SKIPPED: "⚠️",
}

_HEADINGS = (
    "", "candidate", "backend", "evidence", "cases", "worst output", "max error", "PyTorch's",
    "of allowed",
)  # fmt: skip


def markdown_report(result: ParityResult) -> str:
    """A verdict, one table over all candidates, and details of what failed."""
    lines = [
        f"## Parity with `{result.reference}`: {'passed' if result else 'FAILED'}",
        "",
        *_summary(result),
    ]
    for candidate in result.candidates:
        lines += _details(candidate)
    for backend in result.absent:
        lines.append(f"Required backend **{backend}** is absent.")
    lines += ["", f"Suite {result.suite}, seed {result.seed}. {_versions(result)}", ""]
    return "\n".join(lines)


def _summary(result: ParityResult) -> list[str]:
    rows = [f"| {' | '.join(_HEADINGS)} |", f"|{'---|' * len(_HEADINGS)}"]
    for candidate in result.candidates:
        passed = sum(map(bool, candidate.cases))
        cells = [
            f"{_MARKS[candidate.verdict]} {candidate.verdict}",
            f"`{_cell(candidate.name)}`",
            candidate.backend,
            result.tier(candidate),
            f"{passed}/{len(candidate.cases)}",
            *_worst(candidate),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return rows


def _worst(candidate: CandidateResult) -> list[str]:
    if candidate.worst is None:
        return ["", "", "", ""]
    case, output = candidate.worst
    baseline = "" if output.baseline_error is None else number(output.baseline_error)
    name = f"{output.name} ({case.label})"
    return [_cell(name), number(output.max_abs_error), baseline, percent(output.usage)]


def _details(candidate: CandidateResult) -> list[str]:
    lines = [_line(candidate.reason.splitlines()[0])] if candidate.reason else []
    for case in candidate.cases:
        if case.error:
            lines.append(_line(f"{case.label}: {case.error.splitlines()[0]}"))
        for output in case.failures:
            text = f"{case.label}, {output.name}: {output.status}, {output.detail}"
            lines.append(_line(text + (f"; {where(output)}" if output.worst else "")))
        if case.replay:
            lines.append(_line(f"  replay: qkexport parity --replay {case.replay}"))
    if candidate.localization is not None:
        lines += [_line(reason) for reason in candidate.localization.reasons]
    lines += [_line(f"no case tests {name}") for name in candidate.untested]
    lines += [_line(f"note: {note}") for note in candidate.notes]
    return ["", f"### {candidate.name} on {candidate.backend}", "", *lines] if lines else []


def _line(text: str) -> str:
    return f"- `{text.replace('`', chr(39))}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _versions(result: ParityResult) -> str:
    return ", ".join(f"{name} {version}" for name, version in result.environment.items())
