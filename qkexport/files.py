"""Files that are whole or not there, whatever happens to the process that writes them.

Nothing is forced to the disk: after a power failure the digest in an engine's manifest tells, and
waiting for gigabytes to reach the disk would cost more than all else around a build.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer

_TEMPORARY: Final = re.compile(r"\.(?P<name>.+)\.(?P<pid>\d+)\.partial")
_CHUNK_BYTES: Final = 1 << 20


def write_whole(path: Path, parts: Iterable[Buffer]) -> None:
    """Writes a file beside its place, then moves it there in one step.

    What a killed writer left behind is removed by the next one.

    Args:
        path: Replaced if it exists; its folder is made.
        parts: Contents, written one after the other without a copy.
    """
    with writing(path) as temporary, temporary.open("wb") as file:
        for part in parts:
            file.write(part)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[Path]:
    """A temporary path that becomes `path` when the block ends well, and goes when it does not."""
    with temporary_of(path) as temporary:
        yield temporary
        temporary.replace(path)


@contextlib.contextmanager
def temporary_of(path: Path) -> Iterator[Path]:
    """A path beside `path` for what is to be moved there; what is left there in the end goes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def remove_abandoned(path: Path) -> None:
    """Removes temporary files of `path` whose writer is no longer alive."""
    for candidate in path.parent.glob(f".{path.name}.*.partial"):
        match = _TEMPORARY.fullmatch(candidate.name)
        if match and match["name"] == path.name and not _alive(int(match["pid"])):
            candidate.unlink(missing_ok=True)


def remove_abandoned_folders(folder: Path) -> None:
    """Removes temporary folders named `.<pid>.*.partial` whose process is no longer alive."""
    for candidate in folder.glob(".*.partial"):
        pid = candidate.name.split(".")[1]
        if candidate.is_dir() and pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(candidate, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def link_or_copy(source: Path, target: Path) -> None:
    """The same file under a second name; a copy on another file system."""
    try:
        target.hardlink_to(source.resolve())  # of a symbolic link, what it means
    except OSError:
        shutil.copyfile(source, target)


def sha256_of(*paths: Path) -> str:
    """Digest of the contents of files, one after the other."""
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()
