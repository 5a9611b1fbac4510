"""A failing set of inputs in a file of its own, to be run again."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, Final

import torch

from qkexport.errors import UsageError
from qkexport.missing_file import require_file
from qkexport.run.runner import Tensors

_FORMAT: Final = "qkexport-replay-1"


@dataclasses.dataclass(frozen=True)
class Replay:
    """What is needed to repeat one case.

    Attributes:
        reference: As the user named it.
        candidate: Likewise.
        backend: Who ran the candidate.
        label: Name of the case.
        inputs: By the reference's names.
    """

    reference: str
    candidate: str
    backend: str
    label: str
    inputs: Tensors


def save_replay(replay: Replay, folder: Path) -> Path:
    """Writes a replay; the folder is made, and the name says what it is."""
    folder.mkdir(parents=True, exist_ok=True)
    text = f"{Path(replay.candidate).stem}-{replay.backend}-{replay.label}"
    path = folder / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', text)}.pt"
    document = {
        "format": _FORMAT,
        "reference": replay.reference,
        "candidate": replay.candidate,
        "backend": replay.backend,
        "label": replay.label,
        "inputs": {name: x.contiguous() for name, x in replay.inputs.items()},
    }
    torch.save(document, path)
    return path


def load_replay(path: Path) -> Replay:
    """Reads a replay; nothing in it is unpickled but tensors and text.

    Raises:
        UsageError: The file is missing or is not a replay.
    """
    require_file("--replay file", path)
    try:
        document: Any = torch.load(path, weights_only=True)
    except Exception as error:
        text = (str(error).splitlines() or [type(error).__name__])[0]
        message = f"--replay {path} must be a file that parity saved, got {text}."
        raise UsageError(message) from error
    if not isinstance(document, dict) or document.pop("format", None) != _FORMAT:
        raise UsageError(f"--replay {path} must be a file that parity saved, got another kind.")
    return Replay(**document)
