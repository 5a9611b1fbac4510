"""Keeps tensors in files, so that a run holds the outputs of one case at a time."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path

import torch

from qkexport.proof.prepare import Prepared
from qkexport.run.runner import Tensors

_FIELDS = ("inputs", "exact", "baseline")


@dataclasses.dataclass(frozen=True)
class _Stored:
    """A tensor's bytes in a file; torch.save would also compute checksums, at twice the time."""

    path: Path
    dtype: torch.dtype
    shape: torch.Size

    def mapped(self) -> torch.Tensor:
        count = self.shape.numel()
        if not count:  # an empty file cannot be mapped
            return torch.empty(self.shape, dtype=self.dtype)
        flat = torch.from_file(str(self.path), shared=False, size=count, dtype=self.dtype)
        return flat.reshape(self.shape)


class Spool:
    """Named dictionaries of tensors in a temporary folder, until `close`."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="qkexport-parity-"))
        self._count = 0
        self._stored: dict[str, dict[str, _Stored]] = {}
        self._cases: dict[str, Prepared] = {}

    def write(self, key: str, tensors: Tensors) -> None:
        """Stores tensors under a key."""
        self._stored[key] = {name: self._write(x) for name, x in tensors.items()}

    def read(self, key: str) -> dict[str, torch.Tensor]:
        """The tensors of a key, mapped from their files; writing into them leaves these alone."""
        return {name: stored.mapped() for name, stored in self._stored[key].items()}

    def _write(self, x: torch.Tensor) -> _Stored:
        self._count += 1
        stored = _Stored(self._folder / str(self._count), x.dtype, x.shape)
        # bytes, which numpy has for every type
        x.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tofile(stored.path)
        return stored

    def keep(self, key: str, field: str, tensors: Tensors) -> dict[str, torch.Tensor]:
        """Stores a field of the case of that key, and maps it."""
        self.write(f"{key} {field}", tensors)
        return self.read(f"{key} {field}")

    def write_case(self, key: str, case: Prepared) -> None:
        """Stores a prepared case, of which `keep` has stored what the reference returned."""
        self.write(f"{key} inputs", case.inputs)
        self._cases[key] = dataclasses.replace(case, inputs={}, exact={}, baseline={})

    def read_case(self, key: str) -> Prepared | None:
        """The case stored under a key, or None."""
        case = self._cases.get(key)
        if case is None:
            return None
        inputs, exact, baseline = (self.read(f"{key} {field}") for field in _FIELDS)
        return dataclasses.replace(case, inputs=inputs, exact=exact, baseline=baseline)

    def find_case(self, label: str) -> Prepared | None:
        """The case of that label, for whatever type its inputs were rounded to."""
        keys = [key for key, case in self._cases.items() if case.label == label]
        return self.read_case(keys[-1]) if keys else None

    def __contains__(self, key: str) -> bool:
        return key in self._stored

    def close(self) -> None:
        """Deletes everything."""
        shutil.rmtree(self._folder, ignore_errors=True)
