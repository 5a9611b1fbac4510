"""The table of the numerical check that `convert` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console

    from qkexport.compare.results import OutputComparison
    from qkexport.proof.results import CaseResult
    from qkexport.verification import Verification

_SHOWN: Final = 5  # a model with a cache has two tensors a layer


def print_verification(verification: Verification, console: Console) -> None:
    """Prints each output at each set of sizes, and the verdict."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("inputs", "output", "verdict", "max error", "of allowed", "detail"):
        table.add_column(heading, overflow="fold")
    for case in verification.result.cases:
        if case.error:
            table.add_row(_inputs(case), "", "failed", "", "", case.error, style="red")
        shown = _shown(case)
        for output in shown:
            table.add_row(
                _inputs(case),
                output.name,
                str(output.status),
                f"{output.max_abs_error:.3g}",
                f"{output.usage:.0%}",
                output.detail or _vacuous(case, output.name),
                style=None if output else "red",
            )
        if rest := len(case.outputs) - len(shown):
            table.add_row(_inputs(case), f"{rest} more", "matched", "", "", "")
    console.print(table)
    for line in verification.all_notes:
        console.print(f"note: {line}")
    verdict = "MATCHED" if verification else "MISMATCHED"
    console.print(
        f"{verdict} the source in stock ONNX Runtime, float64 oracle, "
        f"max error {verification.max_abs_error:.3g}"
    )


def _shown(case: CaseResult) -> list[OutputComparison]:
    """The first outputs, and all that did not match."""
    return [output for i, output in enumerate(case.outputs) if i < _SHOWN or not output]


def _inputs(case: CaseResult) -> str:
    names = list(case.shapes)
    shapes = " ".join(f"{name}[{_dims(case.shapes[name])}]" for name in names[:_SHOWN])
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{case.label} {shapes}{rest}"


def _dims(shape: tuple[int, ...]) -> str:
    return ",".join(map(str, shape))


def _vacuous(case: CaseResult, name: str) -> str:
    reason = case.vacuous.get(name)
    return f"the reference {reason}" if reason else ""
