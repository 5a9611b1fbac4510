"""Where an engine may go, asked before hours of compiling and not after."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from qkexport.errors import UsageError

ENGINE_SUFFIXES: Final = (".engine", ".plan", ".trt")


def check_engine_output(target: Path, model: Path) -> None:
    """Refuses a path that an engine cannot or must not be written to.

    Args:
        target: The engine.
        model: What it is built from.

    Raises:
        UsageError: It is not named like an engine, is a folder or the model itself, or its folder
            cannot be written.
    """
    if target.suffix not in ENGINE_SUFFIXES:
        message = f"Output must be named like an engine, got {target.name!r}."
        raise UsageError(message, note=f"accepted endings: {', '.join(ENGINE_SUFFIXES)}.")
    if target.is_dir():
        message = f"Output must be a file, got the folder {target}."
        raise UsageError(message, hint=f"name the engine, as in {target / 'model.engine'}.")
    if target.exists() and model.exists() and target.samefile(model):
        message = f"Output must be another file than the model, got {target}."
        raise UsageError(message, hint="the engine would replace the model; name another one.")
    check_output_folder(target.parent)


def check_output_folder(folder: Path) -> None:
    """Refuses a folder that cannot be made or written.

    Raises:
        UsageError: It is a file, lies below one, or must not be written.
    """
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        message = f"Output must go into a folder, got the file {existing}."
        raise UsageError(message, hint="name another folder.")
    if not os.access(existing, os.W_OK | os.X_OK):
        message = f"Output must go into a folder that can be written, got {existing}."
        raise UsageError(message, hint="name another folder, or change who may write there.")
