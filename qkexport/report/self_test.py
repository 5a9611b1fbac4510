"""A self-test for people at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qkexport.report.self_test_files import kill_rate

if TYPE_CHECKING:
    from rich.console import Console

    from qkexport.proof.self_test import SelfTestResult

_STYLES: Final = {"killed": "", "survived": "bold red", "crashed": "bold red"}


def print_self_test(result: SelfTestResult, console: Console) -> None:
    """Prints one row for each mutant, then the kill rate."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("mutant", "verdict", "what is wrong", "noticed by"):
        table.add_column(heading, overflow="fold")
    for entry in result.mutants:
        style = _STYLES.get(entry.verdict, "dim")
        mutant = entry.mutant
        table.add_row(mutant.name, entry.verdict, mutant.description, entry.by, style=style)
    console.print(table)
    if not result.control:
        console.print(f"the model itself does not pass: {result.control.verdict}", style="bold red")
    console.print(kill_rate(result), style="bold green" if result else "bold red")
