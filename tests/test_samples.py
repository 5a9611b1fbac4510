"""The commands that the samples' READMEs show work, and print what the READMEs say."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from document_steps import ROOT, environment_in, steps_of

READMES = sorted((ROOT / "samples").glob("*/README.md"))
_SECONDS = 600


@pytest.mark.parametrize("readme", READMES, ids=lambda path: path.parent.name)
def test_the_commands_of_a_readme_do_what_it_says(readme: Path, tmp_path: Path) -> None:
    folder = tmp_path / readme.parent.name
    shutil.copytree(readme.parent, folder)
    environment = environment_in(tmp_path)
    steps = list(steps_of(readme))
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
