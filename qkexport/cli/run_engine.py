"""`qkexport run`; its module is not called `run` because that one runs the command line."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from qkexport.cli.command import Command
from qkexport.cli.outcome import Outcome
from qkexport.errors import UsageError
from qkexport.input_options import read_inputs
from qkexport.missing_file import require_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console
    from torch import Tensor

_PATH: Final = click.Path(path_type=Path)


@click.command("run", cls=Command)
@click.argument("model", type=_PATH)
@click.option("--inputs", required=True, type=_PATH, help="Inputs by name, .npz or .pt.")
@click.option("--output", type=_PATH, help="Keeps the outputs by name, .npz or .pt.")
@click.option("--backend", help="ort or ort-stock for an .onnx file.  [default: ort-stock]")
def command(model: Path, inputs: Path, output: Path | None, backend: str | None) -> Outcome:
    r"""Run an engine, or an .onnx file, once.

    An engine needs the GPU it was built for; its manifest is checked before it is loaded.

    \b
    Examples:
    qkexport run model.engine --inputs inputs.npz --output outputs.npz
    qkexport run model.onnx --backend ort --inputs inputs.npz
    """
    from qkexport.engine.inspection import is_engine
    from qkexport.manifest import manifest_path, read_manifest
    from qkexport.run import open_runner

    require_file("Model", model)
    values = _tensors(read_inputs(inputs))
    if backend is None:
        engine = is_engine(model)
        backend = read_manifest(manifest_path(model)).runtime if engine else "ort-stock"
    with contextlib.closing(open_runner(model, backend)) as runner:
        results = runner.run(values)
        notes = runner.notes
    if output is not None:
        _save(output, results)
    document = {
        "model": str(model),
        "backend": backend,
        "notes": list(notes),
        "outputs": {name: _describe(tensor) for name, tensor in results.items()},
        "output": None if output is None else str(output),
    }
    return Outcome(True, document, lambda console: _render(console, document))


def _tensors(values: Mapping[str, Any]) -> dict[str, Tensor]:
    import torch

    return {name: torch.as_tensor(value) for name, value in values.items()}


def _save(path: Path, results: Mapping[str, Tensor]) -> None:
    import numpy as np
    import torch

    from qkexport.files import writing

    if path.suffix not in (".npz", ".pt"):
        message = f"Outputs must go into an .npz or .pt file, got {path.name!r}."
        raise UsageError(message)
    with writing(path) as temporary, temporary.open("wb") as file:
        if path.suffix == ".pt":
            torch.save(dict(results), file)
        else:
            # numpy has no bfloat16; float32 holds every value of it.
            wide = {
                name: tensor.float() if tensor.dtype is torch.bfloat16 else tensor
                for name, tensor in results.items()
            }
            np.savez(file, **{name: tensor.numpy() for name, tensor in wide.items()})  # type: ignore[arg-type]


def _describe(tensor: Tensor) -> dict[str, Any]:
    """Shape, type, and what tells a sane output from a broken one at a glance."""
    values = tensor.double()
    finite = values[values.isfinite()]
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "minimum": finite.min().item() if finite.numel() else None,
        "maximum": finite.max().item() if finite.numel() else None,
        "mean": finite.mean().item() if finite.numel() else None,
        "not_finite": values.numel() - finite.numel(),
    }


def _render(console: Console, document: Mapping[str, Any]) -> None:
    from rich.table import Table

    table = Table("output", "type", "shape", "minimum", "maximum", "mean", "not finite", box=None)
    for name, item in document["outputs"].items():
        statistics = (item[key] for key in ("minimum", "maximum", "mean"))
        numbers = ["" if value is None else f"{value:.6g}" for value in statistics]
        shape = str(item["shape"])
        table.add_row(name, item["dtype"], shape, *numbers, str(item["not_finite"]))
    console.print(f"RAN {document['model']} on {document['backend']}")
    for note in document["notes"]:
        console.print(note)
    console.print(table)
