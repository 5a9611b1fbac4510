"""Where an error arises, for people at a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qkexport.proof.layers.results import LayerVerdict, Localization
from qkexport.report.text import number, percent

if TYPE_CHECKING:
    from rich.console import Console

_STYLES: Final = {
    LayerVerdict.MATCHED: "",
    LayerVerdict.ORIGIN: "bold red",
    LayerVerdict.INHERITED: "yellow",
}


def print_localization(found: Localization, console: Console) -> None:
    """Prints one row for each attention, then the reasons."""
    from rich.table import Table

    if found.problem:
        console.print(f"not localized: {found.problem}", style="yellow")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("attention", "module", "verdict"):
        table.add_column(heading, overflow="fold")
    for heading in ("input errors", "error", "of allowed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer in found.layers:
        table.add_row(
            layer.node,
            layer.module,
            str(layer.verdict),
            number(layer.input_error),
            number(layer.output.max_abs_error),
            percent(layer.output.usage),
            style=_STYLES[layer.verdict],
        )
    console.print(f"attentions on {found.case}:")
    console.print(table)
    for reason in found.reasons:
        console.print(f"  {reason}", style="red")
