"""`qkexport build`: an ONNX model to a TensorRT engine."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from qkexport.cli.command import Command
from qkexport.cli.outcome import Outcome

if TYPE_CHECKING:
    from rich.console import Console

    from qkexport.engine import BuildOptions, BuildResult

_LOG: Final = logging.getLogger(__name__)


@click.command(cls=Command)
@click.argument("model", type=click.Path(path_type=Path))
@click.option("-o", "--output", required=True, type=click.Path(path_type=Path), help="Engine.")
@click.option(
    "--runtime",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "tensorrt", "tensorrt-rtx"]),
    help="Which TensorRT builds and runs the engine.",
)
@click.option(
    "--attention",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "plugin", "native"]),
    help="qkexport's plugin, or TensorRT's own operators.",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=MIN,OPT,MAX",
    help="Shapes of an input, sizes joined by x; repeated for a name: one profile each.",
)
@click.option(
    "--target",
    metavar="SM,...",
    help="Compute capabilities to build for ahead of time: sm_89,sm_120 or all.",
)
@click.option("--timing-cache", type=click.Path(path_type=Path), help="Keeps kernel timings.")
@click.option("--workspace", metavar="SIZE", help="Most scratch memory of a kernel, as in 4GiB.")
@click.option("--refit", is_flag=True, help="Weights can be replaced in the engine.")
@click.option("--strip-weights", is_flag=True, help="Ship without weights; a refit adds them.")
@click.option("--version-compatible", is_flag=True, help="Newer TensorRT can load the engine.")
@click.option("--opt-level", type=click.IntRange(0, 5), help="0 builds fast, 5 runs fast.")
def command(model: Path, output: Path, runtime: str, attention: str, **options: Any) -> Outcome:
    """Build a TensorRT engine from MODEL, with a manifest beside it."""
    from qkexport.engine import build

    result = build(
        model,
        output,
        runtime=runtime,
        attention=attention,
        options=_options(**options),
        progress=_log_progress(),
    )
    return Outcome(bool(result), result.to_document(), lambda console: _render(console, result))


def _options(
    shapes: tuple[str, ...], target: str | None, workspace: str | None, **plain: Any
) -> BuildOptions:
    from qkexport.engine import BuildOptions
    from qkexport.engine.options import parse_shapes, parse_size
    from qkexport.engine.targets import parse_targets

    return BuildOptions(
        profiles=parse_shapes(shapes),
        targets=parse_targets(target) if target else (),
        workspace=parse_size(workspace) if workspace else None,
        **plain,
    )


_BAR_WIDTH: Final = 20


def _log_progress() -> Any:
    """Tells the log of every twentieth of the work; on a terminal it shows as a bar."""
    shown = -1

    def progress(share: float, phase: str) -> None:
        nonlocal shown
        filled = int(share * _BAR_WIDTH)
        if filled != shown:
            shown = filled
            bar = "━" * filled + "╌" * (_BAR_WIDTH - filled)
            _LOG.info("building %s %3.0f %% %s", bar, share * 100, phase)

    return progress


def _render(console: Console, result: BuildResult) -> None:
    from rich.table import Table

    manifest = result.manifest
    table = Table(show_header=False, box=None)
    table.add_row("runtime", f"{manifest.runtime} {manifest.version}: {result.runtime_reason}")
    if result.attention_reason:
        table.add_row("attention", f"{manifest.attention}: {result.attention_reason}")
    table.add_row("targets", ", ".join(manifest.targets))
    for number, profile in enumerate(manifest.profiles):
        for name, shapes in profile.items():
            text = " .. ".join("x".join(map(str, shape)) for shape in shapes)
            table.add_row(f"profile {number}", f"{name} {text}")
    for check in result.checks:
        word = {True: "passed", False: "FAILED", None: "not possible"}[check.passed]
        table.add_row(f"check {check.name}", f"{word}: {check.detail}")
    console.print(table)
    megabytes = result.engine_bytes / 1e6
    took = sum(result.seconds.values())
    if result.output is None:
        console.print("No engine was written.")
    else:
        console.print(f"BUILT {result.output} ({megabytes:.1f} MB) in {took:.1f} s")
