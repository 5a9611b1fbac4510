"""`qkexport inspect`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from qkexport.cli.command import Command
from qkexport.cli.outcome import Outcome
from qkexport.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from qkexport.inspection import InspectResult


@click.command("inspect", cls=Command)
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--graph",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also draw the attentions, before and after, as .svg or .html.",
)
def command(file: Path, graph: Path | None) -> Outcome:
    r"""List what FILE holds.

    Of an .onnx file: inputs, outputs, and every attention, fused or why not. Of an engine: its
    manifest, and whether the engine is as it was built.

    \b
    Examples:
    qkexport inspect model.onnx
    qkexport inspect model.onnx --graph attention.svg
    qkexport inspect model.engine --json
    """
    from qkexport.engine.inspection import inspect_engine, is_engine
    from qkexport.inspection import inspect

    if is_engine(file):
        if graph is not None:
            message = f"Only .onnx files have a graph to draw, got {file}."
            raise UsageError(message)
        from qkexport.cli.build_tables import render_engine

        engine = inspect_engine(file)
        return Outcome(
            bool(engine), engine.to_dict(), lambda console: render_engine(console, engine)
        )

    if graph is None:
        result = inspect(file)
        return Outcome(bool(result), result.to_dict(), lambda console: render(result, console))
    return _drawn(file, graph)


def _drawn(file: Path, graph: Path) -> Outcome:
    from qkexport.drawing import draw_file
    from qkexport.inspection import inspect

    drawings = draw_file(file, graph)
    result = inspect(file)
    kinds = {drawing.name: drawing.copies for drawing in drawings}

    def render_drawn(console: Console) -> None:
        render(result, console)
        console.print(f"DRAWN {graph}: {', '.join(f'{name} x{n}' for name, n in kinds.items())}")

    document = {**result.to_dict(), "graph": {"path": str(graph), "attentions": kinds}}
    return Outcome(bool(result), document, render_drawn)


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
