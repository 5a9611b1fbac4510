"""`qkexport build`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from qkexport.cli.command import Command
from qkexport.cli.outcome import Outcome
from qkexport.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from qkexport.engine import BuildOptions

_PATH: Final = click.Path(path_type=Path)


@click.command("build", cls=Command)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...", type=_PATH)
@click.option("-o", "--output", required=True, type=_PATH, help="Engine, or folder of a matrix.")
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
    help="Shapes of an input, sizes joined by x; again for a name: the next profile.",
)
@click.option(
    "--target",
    metavar="SM,...",
    help="Compute capabilities to build for ahead of time, as in sm_89,sm_120; or all.",
)
@click.option("--timing-cache", type=_PATH, metavar="FILE", help="Keeps kernel timings.")
@click.option("--workspace", metavar="SIZE", help="Most scratch memory of a kernel, as in 4GiB.")
@click.option("--refit", is_flag=True, help="Weights can be replaced in the engine.")
@click.option("--strip-weights", is_flag=True, help="Ship without weights; a refit adds them.")
@click.option("--version-compatible", is_flag=True, help="Newer TensorRT can load the engine.")
@click.option("--opt-level", type=click.IntRange(0, 5), help="0 builds fast, 5 runs fast.")
@click.option("--bundle", type=_PATH, metavar="DIR", help="Everything a server needs, in a folder.")
@click.option("--cache", type=_PATH, metavar="DIR", help="Engines that need not be built again.")
@click.option("--jobs", type=click.IntRange(1), help="Processes of a matrix.  [default: one a CPU]")
def command(models: tuple[Path, ...], output: Path, **options: Any) -> Outcome:
    r"""Build TensorRT engines from .onnx models, each with a manifest beside it.

    With an OUTPUT named like an engine, MODEL becomes one engine for all targets. With a folder,
    every MODEL is built for every target, each in a process of its own; engines that the cache
    (OUTPUT/.cache) has are not built again.

    \b
    Examples:
    qkexport build model.onnx -o model.engine
    qkexport build model.onnx -o model.engine --target sm_89,sm_120 --shape x=1x8,4x64,8x512
    qkexport build a.onnx b.onnx -o engines --target all --bundle bundle
    """
    from qkexport.engine.output import ENGINE_SUFFIXES

    if output.suffix not in ENGINE_SUFFIXES:
        return _matrix(models, output, **options)
    if len(models) > 1:
        message = f"Output of several models must be a folder, got {output}."
        raise UsageError(message)
    return _single(models[0], output, **options)


def _single(
    model: Path,
    output: Path,
    *,
    runtime: str,
    attention: str,
    bundle: Path | None,
    cache: Path | None,
    jobs: int | None,
    **options: Any,
) -> Outcome:
    from qkexport.cli.build_progress import log_progress
    from qkexport.cli.build_tables import render_build
    from qkexport.engine import build

    result = build(
        model,
        output,
        runtime=runtime,
        attention=attention,
        options=_options(**options),
        cache=cache,
        progress=log_progress(),
    )
    outcome = Outcome(
        bool(result), result.to_document(), lambda console: render_build(console, result)
    )
    return _bundled(outcome, bundle, [output])


def _matrix(
    models: tuple[Path, ...],
    folder: Path,
    *,
    target: str | None,
    bundle: Path | None,
    cache: Path | None,
    jobs: int | None,
    **options: Any,
) -> Outcome:
    from qkexport.cli.build_tables import render_matrix
    from qkexport.engine.matrix import build_matrix, matrix_cells
    from qkexport.engine.output import check_output_folder
    from qkexport.engine.plan import plan_build

    check_output_folder(folder)
    wanted = _options(target=target, **_of_engine(options))
    targets = plan_build(options["runtime"], options["attention"], wanted).options.targets
    cells = matrix_cells(models, targets, folder)
    result = build_matrix(cells, _arguments(options), cache=cache or folder / ".cache", jobs=jobs)
    outcome = Outcome(
        bool(result), result.to_document(), lambda console: render_matrix(console, result)
    )
    return _bundled(outcome, bundle, [cell.output for cell in cells])


def _bundled(outcome: Outcome, folder: Path | None, engines: list[Path]) -> Outcome:
    """The outcome with a bundle of the engines, if one is wanted and every engine was built."""
    if folder is None or not outcome.passed:
        return outcome
    from qkexport.bundle import write_bundle

    bundle = write_bundle(folder, engines)

    def render(console: Console) -> None:
        outcome.render(console)
        console.print(f"BUNDLED {', '.join(bundle.models)} in {folder}: see README.md there")

    return Outcome(True, {**outcome.document, "bundle": bundle.to_document()}, render)


def _of_engine(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in ("runtime", "attention")}


def _arguments(options: dict[str, Any]) -> list[str]:
    """The options again, as a cell of a matrix is given them on its command line."""
    arguments: list[str] = []
    for name, value in options.items():
        flag = f"--{name.removesuffix('s') if name == 'shapes' else name.replace('_', '-')}"
        if value is True:
            arguments.append(flag)
        elif isinstance(value, tuple):
            arguments += [part for item in value for part in (flag, item)]
        elif value not in (None, False):
            arguments += [flag, str(value)]
    return arguments


def _options(
    shapes: tuple[str, ...], target: str | None, workspace: str | None, **plain: Any
) -> BuildOptions:
    from qkexport.engine import BuildOptions
    from qkexport.engine.options import parse_shapes, parse_size
    from qkexport.engine.targets import parse_targets

    return BuildOptions(
        profiles=parse_shapes(shapes),
        targets=() if target is None else parse_targets(target),
        workspace=parse_size(workspace) if workspace else None,
        **plain,
    )
