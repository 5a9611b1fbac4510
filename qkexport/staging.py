"""A model file that is written, looked at, and only then put in its place."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from qkexport.export import save_model
from qkexport.files import remove_abandoned_folders

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclasses.dataclass(frozen=True)
class StagedModel:
    """A model in a temporary folder beside its destination.

    Attributes:
        model: The model.
        path: Where it is now, with its external data beside it.
        destination: Where `commit` puts it.
    """

    model: ir.Model
    path: Path
    destination: Path

    def commit(self) -> None:
        """Puts the model in its place; its data goes first, so that it is never without."""
        data = [file for file in self.path.parent.iterdir() if file != self.path]
        if data and self.destination.exists():
            # a move would give the old model the new one's data for a moment
            save_model(self.model, self.destination)
            return
        for file in (*data, self.path):
            file.replace(self.destination.with_name(file.name))


@contextlib.contextmanager
def staged_model(model: ir.Model, destination: Path) -> Iterator[StagedModel]:
    """Writes a model beside its destination; without `commit` nothing is left of it.

    What a killed conversion left in the folder is removed by the next one.

    Args:
        model: To be written.
        destination: An .onnx path in an existing folder; a file there survives until `commit`.
    """
    beside = destination.parent
    remove_abandoned_folders(beside)
    prefix = f".{os.getpid()}."
    with tempfile.TemporaryDirectory(dir=beside, prefix=prefix, suffix=".partial") as folder:
        path = Path(folder) / destination.name
        save_model(model, path)
        yield StagedModel(model, path, destination)
