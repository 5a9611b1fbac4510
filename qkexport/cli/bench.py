"""`qkexport bench`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from qkexport.cli.command import Command
from qkexport.cli.names import split_names
from qkexport.cli.outcome import Outcome
from qkexport.errors import BackendUnavailableError

if TYPE_CHECKING:
    from rich.console import Console

    from qkexport.benchmark.results import BenchResult, ContenderResult

_MILLISECONDS: Final = 1e3
_MEGABYTE: Final = 1e6
_HEADINGS: Final = (
    "p50 ms", "p90 ms", "p99 ms", "speed", "first ms", "load ms", "memory MB", "peak MB", "GPU MB",
)  # fmt: skip


@click.command("bench", cls=Command)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--backend",
    "backends",
    multiple=True,
    metavar="NAME[,NAME]",
    help="torch, ort, ort-stock, tensorrt or tensorrt-rtx; default: as each file can run.",
)
@click.option(
    "--require", multiple=True, metavar="NAME[,NAME]", help="Backends that must be here; exit 3."
)
@click.option(
    "--input",
    "specs",
    multiple=True,
    metavar="NAME=SHAPE[:DTYPE]",
    help="Shape to draw an input at, as in ids=1,512:int64.",
)
@click.option("--inputs", type=click.Path(path_type=Path), help="Inputs to run on, .npz or .pt.")
@click.option("--runs", type=click.IntRange(1), default=50, show_default=True, help="Timed runs.")
@click.option(
    "--warm-up", type=click.IntRange(0), default=5, show_default=True, help="Runs before them."
)
@click.option("--threads", type=click.IntRange(1), help="Of each process.  [default: one a CPU]")
@click.option("--seed", type=int, default=0, show_default=True, help="Of inputs that are drawn.")
@click.option("--allow-pickle", is_flag=True, help="Unpickle FILE; this can run any code.")
def command(
    files: tuple[str, ...],
    backends: tuple[str, ...],
    require: tuple[str, ...],
    specs: tuple[str, ...],
    inputs: Path | None,
    runs: int,
    warm_up: int,
    threads: int | None,
    seed: int,
    allow_pickle: bool,
) -> Outcome:
    r"""Measure FILEs side by side: latency percentiles, first run, memory.

    Every FILE runs on each of its backends in a process of its own, one after the other, on the
    same inputs. Speed is relative to the first line. Whether they compute the same is not looked
    at here: that is `qkexport parity`.

    \b
    Examples:
    qkexport bench model.pt2 model.onnx
    qkexport bench before.onnx after.onnx --backend ort --input ids=1,512:int64
    """
    from qkexport.benchmark.bench import bench

    result = bench(
        files,
        backends=split_names(backends),
        require=split_names(require),
        input_specs=specs,
        inputs=inputs,
        runs=runs,
        warm_up=warm_up,
        threads=threads,
        seed=seed,
        allow_pickle=allow_pickle,
    )
    if result.absent:
        raise _absent(result)
    return Outcome(bool(result), result.to_dict(), lambda console: render(result, console))


def _absent(result: BenchResult) -> BackendUnavailableError:
    reasons = {each.reason for each in result.contenders if each.backend in result.absent}
    message = f"Required backends must be here, got none for {', '.join(result.absent)}."
    return BackendUnavailableError(message, note=" ".join(sorted(reasons)))


def render(result: BenchResult, console: Console) -> None:
    """Prints one line for each contender, then what a reader should know."""
    from rich.table import Table

    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in result.shapes.items())
    console.print(f"inputs {shapes}; {result.threads} threads")
    table = Table("file", "backend", "", *_HEADINGS, box=None)
    for each in result.contenders:
        table.add_row(each.source, each.backend, each.verdict, *_numbers(result, each))
    console.print(table)
    for each in result.contenders:
        if each.reason:
            console.print(f"{each.source} on {each.backend}: {each.reason}")
        for note in each.measurement.notes if each.measurement else ():
            console.print(f"note: {each.source} on {each.backend}: {note}")


def _numbers(result: BenchResult, contender: ContenderResult) -> list[str]:
    found, speed = contender.measurement, result.speedup(contender)
    if found is None:
        return []
    times = (*found.latency.percentiles.values(), found.first_seconds, found.load_seconds)
    p50, p90, p99, first, load = (f"{_MILLISECONDS * seconds:.3f}" for seconds in times)
    sizes = (found.memory_bytes, found.peak_bytes, found.device_bytes)
    memory = ("" if size is None else f"{size / _MEGABYTE:.1f}" for size in sizes)
    return [p50, p90, p99, "" if speed is None else f"{speed:.2f}x", first, load, *memory]
