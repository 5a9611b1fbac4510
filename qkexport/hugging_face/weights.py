"""Which weight files a folder holds, and whether they can be read without running code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from qkexport.errors import LoadError

_LFS_MAGIC: Final = b"version https://git-lfs"
_SAFE: Final = ("model.safetensors", "model.safetensors.index.json")
_PICKLED: Final = ("pytorch_model.bin", "pytorch_model.bin.index.json")


def find_weights(path: Path, *, allow_pickle: bool) -> bool:
    """Whether the weights are safetensors; they are preferred.

    Raises:
        LoadError: There are none, some are missing or pointers only, or they are pickled and that
            is not allowed.
    """
    for names, is_safe in ((_SAFE, True), (_PICKLED, False)):
        files = _files(path, names)
        if not files:
            continue
        if not is_safe and not allow_pickle:
            message = f"Source {path} has pickled weights only, got {files[0].name}."
            hint = "save it again as safetensors, or pass --allow-pickle if you trust it."
            raise LoadError(message, note="nothing was unpickled.", hint=hint)
        _check_files(path, files)
        return is_safe
    message = f"Source {path} must hold its weights, got no {_SAFE[0]}."
    raise LoadError(message, hint="download the whole folder.")


def _files(path: Path, names: Sequence[str]) -> list[Path]:
    single, index = (path / name for name in names)
    if single.is_file():
        return [single]
    if not index.is_file():
        return []
    try:
        parts = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        message = f"Source {index} must list the weights' files, got {type(error).__name__}."
        raise LoadError(message, hint="download it again.") from None
    return [path / str(part) for part in sorted(parts)]


def _check_files(path: Path, files: Sequence[Path]) -> None:
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        message = f"Source {path} must hold all its weights, got no {', '.join(missing)}."
        raise LoadError(message, hint="download the missing files.")
    for file in files:
        with file.open("rb") as stream:
            if stream.read(len(_LFS_MAGIC)) == _LFS_MAGIC:
                message = f"Source {file} must hold weights, got a Git LFS pointer."
                raise LoadError(message, hint="fetch the real file with: git lfs pull")
