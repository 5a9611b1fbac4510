"""`qkexport inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from qkexport.cli.command import Command
from qkexport.cli.outcome import Outcome

if TYPE_CHECKING:
    from rich.console import Console

    from qkexport.inspection import InspectResult


@click.command("inspect", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
def command(file: Path) -> Outcome:
    """List what FILE holds.

    Of an .onnx file: inputs, outputs, and every attention, fused or why not. Of an engine: its
    manifest, and whether the engine is as it was built.
    """
    from qkexport.engine.inspection import inspect_engine, is_engine
    from qkexport.inspection import inspect

    if is_engine(file):
        from qkexport.cli.build_tables import render_engine

        engine = inspect_engine(file)
        return Outcome(
            bool(engine), engine.to_dict(), lambda console: render_engine(console, engine)
        )

    result = inspect(file)
    return Outcome(bool(result), result.to_dict(), lambda console: render(result, console))


def render(result: InspectResult, console: Console) -> None:
    """Prints the model's signature and its attentions."""
    from qkexport.cli.attention_table import print_attentions

    opsets = ", ".join(f"{domain or 'ai.onnx'} {n}" for domain, n in result.opsets.items())
    megabytes = result.weight_bytes / 1e6
    console.print(f"{result.path}: {result.form}, opset {opsets}, {megabytes:.1f} MB of weights")
    for kind, values in (("input", result.inputs), ("output", result.outputs)):
        for name, shape in values.items():
            console.print(f"{kind:6} {name} {shape}")
    print_attentions(result.attentions, console)
    console.print(
        f"{result.fused} of {result.found} QK-norm attentions fused, {result.fusable} could be"
    )
