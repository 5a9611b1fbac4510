"""A parity result for people at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qkexport.compare.ulp import HISTOGRAM_LABELS
from qkexport.proof.results import CandidateResult, CaseResult, ParityResult, Verdict
from qkexport.report.localization import print_localization
from qkexport.report.text import number, percent, sparkline

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from qkexport.compare import OutputComparison

_STYLES: Final = {
    Verdict.MATCHED: "bold green",
    Verdict.MISMATCHED: "bold red",
    Verdict.FAILED: "bold red",
    Verdict.SKIPPED: "bold yellow",
}

_UNRELATED: Final = (
    "The outputs have nothing in common: is it the same model? A factory must give the same "
    "weights every time, by a seed or a file."
)


def print_parity(result: ParityResult, console: Console) -> None:
    """Prints one block for each candidate, then what was left out, then the verdict."""
    console.print(f"reference {result.reference}, suite {result.suite}, seed {result.seed}")
    for candidate in result.candidates:
        _print_candidate(result, candidate, console)
    for pair in result.pairs:
        difference = number(pair.max_abs_difference)
        console.print(f"{pair.left} against {pair.right}: {pair.output} differs by {difference}")
    for refused in result.skipped_cases:
        console.print(f"not tried, the reference refuses it: {refused}", style="dim")
    for backend in result.absent:
        console.print(f"REQUIRED backend {backend} is absent", style="bold red")
    console.print(_time(result), style="dim")


def _print_candidate(result: ParityResult, candidate: CandidateResult, console: Console) -> None:
    verdict = candidate.verdict
    title = f"{verdict} {candidate.name} on {candidate.backend}"
    console.print()
    console.print(title, style=_STYLES[verdict])
    console.print(f"evidence: {result.tier(candidate)}", style="dim")
    if candidate.reason:
        console.print(candidate.reason, style=_STYLES[verdict])
    for note in candidate.notes:
        console.print(f"note: {note}", style="dim")
    for name in candidate.untested:
        console.print(f"UNTESTED {name}: constant, empty or not finite in every case", style="red")
    if candidate.cases:
        console.print(_table(candidate))
    for case in candidate.cases:
        _print_failures(case, console)
    if candidate.localization is not None:
        print_localization(candidate.localization, console)
    if candidate.unrelated:
        console.print(_UNRELATED, style="red")
    derivation = _derivation(candidate)
    if derivation:
        console.print(f"allowed: {derivation}", style="dim")


def _table(candidate: CandidateResult) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("case", "output", "verdict"):
        table.add_column(heading, overflow="fold")
    for heading in ("max error", "PyTorch's", "of allowed", "cosine"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("ulps 0..>8k", no_wrap=True)
    for case in candidate.cases:
        if case.error:
            table.add_row(case.label, "", "failed", style="red")
        for output in case.outputs:
            table.add_row(*_row(case, output), style="" if output else "red")
    return table


def _row(case: CaseResult, output: OutputComparison) -> list[str]:
    verdict = str(output.status)
    if output.name in case.vacuous:
        verdict += f" (reference {case.vacuous[output.name]})"
    if not output.num_rows:
        return [case.label, output.name, verdict]
    baseline = "" if output.baseline_error is None else number(output.baseline_error)
    return [
        case.label,
        output.name,
        verdict + ("*" if output.noise_measured else ""),
        number(output.max_abs_error),
        baseline,
        percent(output.usage),
        f"{output.cosine:.6f}",
        sparkline(output.ulps) if output.ulps else "",
    ]


def _print_failures(case: CaseResult, console: Console) -> None:
    if case.error:
        console.print(f"{case.label}: {case.error}", style="red")
    for output in case.outputs:
        if output.detail:
            style = "" if output else "red"
            console.print(f"{case.label}, {output.name}: {output.detail}", style=style)
        if not output and output.worst is not None:
            console.print(f"  worst at {where(output)}")
        if not output and output.head_usage:
            heads = [str(h) for h, usage in enumerate(output.head_usage) if usage > 1]
            console.print(f"  heads beyond their limit: {', '.join(heads)}")
    if case.replay:
        console.print(f"  replay: qkexport parity --replay {case.replay}")


def where(output: OutputComparison) -> str:
    """The worst element in one line: index, values, error and allowance."""
    worst = output.worst
    assert worst is not None
    head = "" if worst.head is None else f" (head {worst.head})"
    pytorch = "" if worst.baseline is None else f", PyTorch {worst.baseline:.9g}"
    return (
        f"{list(worst.index)}{head}: {worst.candidate:.9g}, exact {worst.oracle:.9g}{pytorch}; "
        f"error {number(worst.error)}, allowed {number(worst.allowed)}"
    )


def _derivation(candidate: CandidateResult) -> str:
    outputs = [output for case in candidate.cases for output in case.outputs]
    texts = list(dict.fromkeys(output.derivation for output in outputs if output.derivation))
    text = "; ".join(texts)
    if any(output.noise_measured for output in outputs):
        text += "; * and 6 x the measured effect of rounding noise"
    needed = max((output.needed_factor for output in outputs if not output), default=0.0)
    if needed:
        text += f"; would pass at {number(needed)} x PyTorch's error"
    return text


def _time(result: ParityResult) -> str:
    parts = [f"{name} {seconds:.2f} s" for name, seconds in result.seconds.items()]
    return f"ulp bins {' '.join(HISTOGRAM_LABELS)}; time: {', '.join(parts)}"
