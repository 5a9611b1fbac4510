"""The matrix on Ray and on GitHub Actions, as the sample shows it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from document_steps import python_path
from engine_models import needs_rtx, save_fused, save_native
from tensorrt_stubs import REPOSITORY

from qkexport.engine.targets import known_targets
from qkexport.engine.verify import verify_files

SAMPLE = REPOSITORY / "samples" / "03_build_an_engine"

pytestmark = needs_rtx


@pytest.mark.parametrize("sample", ["04_deploy_with_triton", "05_run_from_cpp"])
def test_samples_show_the_same_encoder(sample: str) -> None:
    copy = SAMPLE.with_name(sample) / "encoder.py"
    assert copy.read_text() == (SAMPLE / "encoder.py").read_text()


def test_ray_brings_back_what_could_be_built(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="pip install ray")
    models = [save_fused(tmp_path / "good.onnx"), save_native(tmp_path / "bad.onnx", unused=True)]
    command = [sys.executable, str(SAMPLE / "ray_matrix.py"), *map(str, models)]
    command += ["--target", "sm_89,sm_120", "-o", str(tmp_path / "engines")]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": python_path(), "RAY_USAGE_STATS_ENABLED": "0"},
    )
    lines = sorted(line for line in done.stdout.splitlines() if line.startswith(("good.", "bad.")))
    assert len(lines) == 4, done.stdout + done.stderr
    assert all("got unused" in line for line in lines[:2])
    assert lines[2:] == ["good.sm_120.engine: BUILT", "good.sm_89.engine: BUILT"]
    assert done.returncode == 1
    for target in ("sm_89", "sm_120"):
        manifest = verify_files(tmp_path / "engines" / f"good.{target}.engine")
        assert manifest.targets == (target,)


@pytest.fixture(scope="module")
def workflow() -> Any:
    return yaml.safe_load((SAMPLE / "github_matrix.yml").read_text())


def test_the_workflow_names_every_target(workflow: Any) -> None:
    assert workflow["jobs"]["build"]["strategy"]["matrix"]["target"] == list(known_targets())
    assert workflow["jobs"]["build"]["strategy"]["fail-fast"] is False


def test_the_command_of_a_workflow_cell_builds_its_engine(workflow: Any, tmp_path: Path) -> None:
    job = workflow["jobs"]["build"]
    model, target = (job["strategy"]["matrix"][name][-1] for name in ("model", "target"))
    (text,) = [
        step["run"] for step in job["steps"] if step.get("run", "").startswith("qkexport build")
    ]
    for name, value in (("model", model), ("target", target)):
        text = text.replace("${{ matrix." + name + " }}", value)
    save_fused(tmp_path / model)
    command = [sys.executable, "-m", *shlex.split(text)]
    subprocess.run(command, check=True, cwd=tmp_path, timeout=300, stdout=subprocess.DEVNULL)
    (upload,) = [step for step in job["steps"] if "upload-artifact" in step.get("uses", "")]
    names = {path.name for path in tmp_path.glob(upload["with"]["path"])}
    assert names == {f"encoder.{target}.engine", f"encoder.{target}.engine.json"}
