"""Models times targets, each cell in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from engine_models import needs_rtx, save_fused, save_native

from qkexport.engine.matrix import Cell, _result, build_matrix, matrix_cells
from qkexport.engine.verify import verify_files
from qkexport.errors import UsageError

CELL = Cell(Path("m.onnx"), "sm_89", Path("m.engine"))


def test_every_model_meets_every_target() -> None:
    cells = matrix_cells([Path("a/x.onnx"), Path("y.onnx")], ["sm_89", "sm_120"], Path("out"))
    assert [str(cell.output) for cell in cells] == [
        "out/x.sm_89.engine",
        "out/x.sm_120.engine",
        "out/y.sm_89.engine",
        "out/y.sm_120.engine",
    ]


def test_models_that_would_share_an_engine_are_refused() -> None:
    with pytest.raises(UsageError, match="must have different names, got x twice"):
        matrix_cells([Path("a/x.onnx"), Path("b/x.onnx")], ["sm_89"], Path("out"))


@pytest.mark.parametrize(
    ("code", "output", "log", "reason"),
    [
        (-signal.SIGABRT, "", "terminate called\n", "ended by SIGABRT: terminate called"),
        (-signal.SIGKILL, "", "", "ended by SIGKILL: no message"),
        (1, '{"error": {"message": "No.", "note": null, "hint": "Do."}}', "", "No.\nDo."),
        (1, '{"checks": [{"name": "header", "passed": false}]}', "", "checks failed: header"),
        (3, "", "ImportError", "ImportError"),
        (0, "", "", "exit code 0"),
    ],
)
def test_a_cell_without_an_engine_says_why(code: int, output: str, log: str, reason: str) -> None:
    result = _result(CELL, code, output, log, 1.0)
    assert not result.passed
    assert result.error is not None
    assert reason in result.error


@needs_rtx
def test_one_failing_model_does_not_lose_the_others_and_nothing_is_built_twice(
    tmp_path: Path,
) -> None:
    models = [
        save_fused(tmp_path / "good.onnx"),
        save_native(tmp_path / "bad.onnx", unused=True),
    ]
    cells = matrix_cells(models, ["sm_89", "sm_120"], tmp_path / "out")
    first = build_matrix(cells, [], cache=tmp_path / "cache", jobs=2)
    assert not first
    assert [cell.passed for cell in first.cells] == [True, True, False, False]
    assert all("got unused" in str(cell.error) for cell in first.cells[2:])
    for cell in cells[:2]:
        assert verify_files(cell.output).targets == (cell.target,)
    again = build_matrix(cells[:2], [], cache=tmp_path / "cache", jobs=2)
    assert again
    assert all(cell.cached for cell in again.cells)


@needs_rtx
def test_a_matrix_that_was_killed_goes_on_where_it_stopped(tmp_path: Path) -> None:
    models = [save_fused(tmp_path / f"m{seed}.onnx", seed=seed) for seed in range(3)]
    command = [sys.executable, "-m", "qkexport", "build", *map(str, models)]
    command += ["-o", str(tmp_path / "out"), "--target", "sm_89", "--jobs", "1", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 120
        while not (tmp_path / "out" / "m0.sm_89.engine.json").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    cells = json.loads(done.stdout)["cells"]
    assert all(cell["passed"] for cell in cells)
    assert cells[0]["cached"] or verify_files(Path(cells[0]["output"]))
    assert not cells[2]["cached"]
    for cell in cells:
        verify_files(Path(cell["output"]))
    assert list((tmp_path / "out").rglob("*.partial")) == []
