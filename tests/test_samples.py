"""The commands that the samples' READMEs show work, and print what the READMEs say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
READMES = sorted((ROOT / "samples").glob("*/README.md"))
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SECONDS = 600


def _steps(readme: Path) -> Iterator[tuple[str, list[str]]]:
    """Each shell block, with the lines of the text block that follows it."""
    blocks = [match.groups() for match in _BLOCK.finditer(readme.read_text())]
    for (kind, text), (next_kind, next_text) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "sh":
            yield text, next_text.splitlines() if next_kind == "text" else []


def _environment(folder: Path) -> dict[str, str]:
    """PATH with this interpreter and its `qkexport`, which is made where it is not installed."""
    binaries = Path(sys.executable).parent
    if not (binaries / "qkexport").exists():
        script = folder / "bin" / "qkexport"
        script.parent.mkdir()
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m qkexport "$@"\n')
        script.chmod(0o755)
    paths = [str(folder / "bin"), str(binaries), os.environ["PATH"]]
    python_paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "PATH": os.pathsep.join(paths),
        "PYTHONPATH": os.pathsep.join(filter(None, python_paths)),
        "OMP_NUM_THREADS": "1",
    }


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.parent.name)
def test_the_commands_of_a_readme_do_what_it_says(readme: Path, tmp_path: Path) -> None:
    folder = tmp_path / readme.parent.name
    shutil.copytree(readme.parent, folder)
    environment = _environment(tmp_path)
    steps = list(_steps(readme))
    assert steps, "a sample shows at least one command"
    for command, expected in steps:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        for line in expected:
            assert line in done.stdout, f"{command}\n{done.stdout}"
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["01_convert_a_model/model.py", "02_generate_text/generate.py"])
def test_the_code_of_a_sample_stays_short(name: str) -> None:
    source = ROOT / "samples" / name
    lines = [line.strip() for line in source.read_text().splitlines()]
    docstring = 3
    assert sum(bool(line) and not line.startswith("#") for line in lines) - docstring <= 60
