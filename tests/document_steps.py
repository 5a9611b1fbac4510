"""Commands in documents: what is to be run, in which environment, and what must be printed."""

from __future__ import annotations

import os
import re
import site
import sys
from collections.abc import Iterator
from pathlib import Path

import qkexport

ROOT = Path(__file__).resolve().parents[1]
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def steps_of(readme: Path) -> Iterator[tuple[str, list[str]]]:
    """Each shell block, with the lines of the text block that follows it."""
    blocks = [match.groups() for match in _BLOCK.finditer(readme.read_text())]
    for (kind, text), (next_kind, next_text) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "sh":
            yield text, next_text.splitlines() if next_kind == "text" else []


def environment_in(folder: Path) -> dict[str, str]:
    """PATH with this interpreter and its `qkexport`, which is made where it is not installed."""
    binaries = Path(sys.executable).parent
    if not (binaries / "qkexport").exists():
        script = folder / "bin" / "qkexport"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m qkexport "$@"\n')
        script.chmod(0o755)
    paths = [str(folder / "bin"), str(binaries), os.environ["PATH"]]
    return {
        **os.environ,
        "PATH": os.pathsep.join(paths),
        "PYTHONPATH": python_path(),
        "OMP_NUM_THREADS": "1",
    }


def python_path() -> str:
    """PYTHONPATH under which another process imports the same `qkexport` as this one."""
    folder = str(Path(qkexport.__file__).parents[1])
    installed = folder in site.getsitepackages()
    paths = ["" if installed else folder, os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(filter(None, paths))
