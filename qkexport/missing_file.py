"""What is said about a file that is not there, by every command: where it may be instead."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Final

from qkexport.errors import LoadError

_MOST_NAMED: Final = 3


def require_file(subject: str, path: Path, *, note: str | None = None) -> None:
    """Refuses a path that is no file.

    Args:
        subject: What the file is, such as `Model` or `--inputs file`.
        path: As the user wrote it.
        note: What is accepted.

    Raises:
        LoadError: The path is a folder or names nothing; the hint says what is nearby.
    """
    if not path.is_file():
        raise missing_file(subject, path, note=note)


def missing_file(subject: str, path: Path, *, note: str | None = None) -> LoadError:
    """The error for a path that is no file."""
    if path.is_dir():
        message = f"{subject} must be a file, got the folder {path}."
        return LoadError(message, note=note, hint=_contents(path, path.suffix))
    return LoadError(f"{subject} must exist, got {path}.", note=note, hint=_nearby(path))


def _nearby(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder}; {_start(path)}"
    names = [entry.name for entry in folder.glob("*")]
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"did you mean {folder / close[0]}?" if close else _contents(folder, path.suffix)


def _contents(folder: Path, suffix: str) -> str:
    """Files of the folder with the wanted ending; what to check where there are none."""
    alike = sorted(entry.name for entry in folder.glob(f"*{suffix}") if suffix and entry.is_file())
    if not alike:
        return f"{folder} holds no {suffix or 'such'} file; {_start(folder)}"
    more = ", ..." if len(alike) > _MOST_NAMED else ""
    return f"{folder} holds {', '.join(alike[:_MOST_NAMED])}{more}"


def _start(path: Path) -> str:
    if path.is_absolute():
        return "check the path."
    return f"relative paths start at {Path.cwd()}."
