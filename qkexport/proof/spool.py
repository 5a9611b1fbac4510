"""Keeps tensors in files, so that a run holds the outputs of one case at a time."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from pathlib import Path

import torch

from qkexport.proof.prepare import Prepared
from qkexport.run.runner import Tensors

_TENSORS = ("inputs", "exact", "baseline")


class Spool:
    """Named dictionaries of tensors in a temporary folder, until `close`."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="qkexport-parity-"))
        self._paths: dict[str, Path] = {}
        self._cases: dict[str, Prepared] = {}

    def write(self, key: str, tensors: Tensors) -> None:
        """Stores tensors under a key."""
        self._paths[key] = self._folder / f"{len(self._paths)}.pt"
        torch.save({name: x.contiguous() for name, x in tensors.items()}, self._paths[key])

    def read(self, key: str) -> dict[str, torch.Tensor]:
        """The tensors of a key, mapped from their file."""
        loaded: dict[str, torch.Tensor] = torch.load(self._paths[key], weights_only=True, mmap=True)
        return loaded

    def write_case(self, key: str, case: Prepared) -> None:
        """Stores a prepared case; its tensors leave memory."""
        for field in _TENSORS:
            self.write(f"{key} {field}", getattr(case, field))
        self._cases[key] = dataclasses.replace(case, inputs={}, exact={}, baseline={})

    def read_case(self, key: str) -> Prepared | None:
        """The case stored under a key, or None."""
        case = self._cases.get(key)
        if case is None:
            return None
        inputs, exact, baseline = (self.read(f"{key} {field}") for field in _TENSORS)
        return dataclasses.replace(case, inputs=inputs, exact=exact, baseline=baseline)

    def find_case(self, label: str) -> Prepared | None:
        """The case of that label, for whatever type its inputs were rounded to."""
        keys = [key for key, case in self._cases.items() if case.label == label]
        return self.read_case(keys[-1]) if keys else None

    def __contains__(self, key: str) -> bool:
        return key in self._paths

    def close(self) -> None:
        """Deletes everything."""
        shutil.rmtree(self._folder, ignore_errors=True)
