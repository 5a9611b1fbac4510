"""The workflows of the sample fit GitHub's schema, and what they run exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from qkexport.cli.parity import command

SAMPLE = Path(__file__).parents[2] / "samples" / "06_parity_in_ci"
WORKFLOWS = sorted(SAMPLE.glob("*.yml"))


def _load(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_there_is_a_reusable_workflow_and_one_that_calls_it() -> None:
    assert [path.name for path in WORKFLOWS] == ["ci.yml", "parity.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_fits_the_published_schema(path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    schema = ["--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *schema, str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_schema_would_notice_a_wrong_workflow(tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    workflow = _load(SAMPLE / "parity.yml")
    workflow["jobs"]["parity"]["step"] = workflow["jobs"]["parity"].pop("steps")
    wrong = tmp_path / "wrong.yml"
    wrong.write_text(yaml.safe_dump(workflow))
    schema = ["--builtin-schema", "vendor.github-workflows"]
    done = subprocess.run(
        [sys.executable, "-m", "check_jsonschema", *schema, str(wrong)],
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1


def _commands() -> list[list[str]]:
    steps = _load(SAMPLE / "parity.yml")["jobs"]["parity"]["steps"]
    lines = [step["run"] for step in steps if "run" in step]
    return [shlex.split(line)[2:] for line in lines if line.startswith("qkexport parity")]


def test_every_option_that_the_workflow_gives_exists() -> None:
    known = {option for parameter in command.params for option in parameter.opts}
    commands = _commands()
    assert len(commands) == 2
    given = {word for words in commands for word in words if word.startswith("--")}
    assert "--self-test" in given
    assert given <= known


def test_no_input_is_pasted_into_a_shell() -> None:
    for path in WORKFLOWS:
        for job in _load(path)["jobs"].values():
            for step in job.get("steps", ()):
                assert not re.search(r"\$\{\{", step.get("run", ""))


def test_the_caller_gives_what_the_reusable_workflow_asks_for() -> None:
    # yaml reads the key `on` as true
    asked = _load(SAMPLE / "parity.yml")[True]["workflow_call"]["inputs"]
    job = _load(SAMPLE / "ci.yml")["jobs"]["parity"]
    assert job["uses"].endswith("/parity.yml")
    assert set(job["with"]) <= set(asked)
    assert {name for name, entry in asked.items() if entry.get("required")} <= set(job["with"])
