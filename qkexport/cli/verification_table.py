"""The table of the numerical check that `convert` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from qkexport.verification import Verification, VerifiedCase


def print_verification(verification: Verification, console: Console) -> None:
    """Prints each output at each set of sizes, and the verdict."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("inputs", "output", "verdict", "max error", "of allowed", "detail"):
        table.add_column(heading, overflow="fold")
    for case in verification.cases:
        for output in case.comparison.outputs:
            table.add_row(
                _inputs(case),
                output.name,
                str(output.status),
                f"{output.max_abs_error:.3g}",
                f"{output.usage:.0%}",
                output.detail or case.vacuous.get(output.name, ""),
                style=None if output else "red",
            )
    console.print(table)
    for line in (*verification.skipped, *verification.notes):
        console.print(f"note: {line}")
    verdict = "MATCHED" if verification else "MISMATCHED"
    console.print(
        f"{verdict} the source in stock ONNX Runtime, float64 oracle, "
        f"max error {verification.max_abs_error:.3g}"
    )


def _inputs(case: VerifiedCase) -> str:
    sizes = ",".join(f"{symbol}={size}" for symbol, size in case.sizes.items())
    return f"{case.label} {sizes}".rstrip()
