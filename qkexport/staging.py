"""A model file that is written, looked at, and only then put in its place."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclasses.dataclass(frozen=True)
class StagedModel:
    """A model in a temporary folder beside its destination.

    Attributes:
        path: Where it is now, with its external data beside it.
        destination: Where `commit` puts it.
    """

    path: Path
    destination: Path

    def commit(self) -> None:
        """Moves the model and its data into place; the model last, so that it finds its data."""
        files = sorted(self.path.parent.iterdir(), key=lambda file: file == self.path)
        for file in files:
            file.replace(self.destination.parent / file.name)


@contextlib.contextmanager
def staged_model(model: ir.Model, destination: Path) -> Iterator[StagedModel]:
    """Writes a model beside its destination; without `commit` nothing is left of it.

    Args:
        model: To be written.
        destination: An .onnx path in an existing folder; a file there survives until `commit`.
    """
    from qkexport.export import save_model

    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=".qkexport-") as folder:
        path = Path(folder) / destination.name
        save_model(model, path)
        yield StagedModel(path, destination)
