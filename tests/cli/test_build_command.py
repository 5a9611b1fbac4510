"""`qkexport build`, `run` and `inspect` of engines as scripts and people use them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_models import WIDTH, needs_rtx, save_fused, save_native

from qkexport.cli.run import run
from qkexport.engine.inspection import is_engine
from qkexport.engine.verify import verify_files

BUILD = ["build", "m.onnx", "-o", "m.engine", "--target", "sm_89,sm_120"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_fused(tmp_path / "m.onnx")
    return tmp_path


def _document(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


@needs_rtx
def test_people_read_why_the_engine_is_as_it_is(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(BUILD) == 0
    captured = capsys.readouterr()
    assert "only TensorRT-RTX builds for GPUs that are not here" in captured.out
    assert "native: TensorRT-RTX has no plugins" in captured.out
    assert "sm_89, sm_120" in captured.out
    assert "BUILT m.engine" in captured.out
    assert "no --shape says how these sizes vary" in captured.err
    assert sorted(path.name for path in home.iterdir()) == [
        "m.engine",
        "m.engine.json",
        "m.onnx",
    ]


@needs_rtx
def test_the_json_document_keeps_the_contract(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shapes = ["--shape", "x=1x1x32,2x59x32,3x97x32", "--workspace", "1GiB"]
    assert run([*BUILD, *shapes, "--json"]) == 0
    document = _document(capsys)
    assert document["schema_version"] == 1
    assert document["command"] == "build"
    assert document["passed"] is True
    assert document["output"] == "m.engine"
    assert document["manifest"]["targets"] == ["sm_89", "sm_120"]
    assert document["manifest"]["profiles"] == [
        {"x": [[1, 1, WIDTH], [2, 59, WIDTH], [3, 97, WIDTH]]}
    ]
    assert document["manifest"]["options"]["workspace"] == 1 << 30
    assert {check["name"]: check["passed"] for check in document["checks"]} == {
        "layers": True,
        "inputs": True,
        "header": True,
        "inspector": None,
    }


@needs_rtx
def test_verbose_tells_how_far_the_build_is(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*BUILD, "-v"]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "INFO: building" in line]
    assert len(told) > 5
    assert "building, 0 %" in told[0]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--target", ""], 2, "Target must be a compute capability, got ''"),
        (["-o", "m.onnx/m.engine"], 2, "Output must go into a folder, got the file"),
        (["--target", "ada"], 2, "Target must be a compute capability, got 'ada'"),
        (["--target", "sm_90"], 2, "must be one that tensorrt-rtx compiles for, got sm_90"),
        (["--shape", "x=1"], 2, "must fit batchxseqx32"),
        (["--shape", "nonsense"], 2, "must read NAME=MIN,OPT,MAX"),
        (["--workspace", "lots"], 2, "Size must be a number"),
        (["--opt-level", "9"], 2, "0<=x<=5"),
        (["--runtime", "tensorrt"], 3, "got no GPU"),
        (["--attention", "plugin"], 3, "got no GPU"),
        (["--runtime", "tensorrt-rtx", "--attention", "plugin"], 2, "needs the runtime tensorrt"),
        (["--workspace", "1"], 1, "no kernel fits into the workspace"),
    ],
)
@needs_rtx
def test_what_is_refused_has_its_exit_code_and_leaves_no_file(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    said: str,
) -> None:
    assert run(["build", "m.onnx", "-o", "m.engine", *arguments]) == code
    assert said in capsys.readouterr().err
    assert [path.name for path in home.iterdir()] == ["m.onnx"]


def test_without_tensorrt_the_fixing_command_is_named(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorrt_rtx", None)
    assert run(BUILD) == 3
    assert "pip install 'qkexport[rtx]'" in capsys.readouterr().err


@needs_rtx
def test_an_unused_input_is_exit_code_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_native(home / "m.onnx", unused=True)
    assert run([*BUILD, "--json"]) == 1
    error = _document(capsys)["error"]
    assert error["message"].endswith("got unused.")
    assert "Unused Input" in error["note"]


def test_a_matrix_wants_a_folder_and_no_file(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["build", "m.onnx", "-o", "m.onnx"]) == 2
    assert "Output must go into a folder, got the file" in capsys.readouterr().err


def test_several_models_want_a_folder(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["build", "m.onnx", "m.onnx", "-o", "m.engine"]) == 2
    assert "Output of several models must be a folder" in capsys.readouterr().err


@needs_rtx
def test_a_folder_makes_a_matrix_that_is_not_built_twice(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_fused(home / "other.onnx", seed=5)
    matrix = ["build", "m.onnx", "other.onnx", "-o", "engines", "--target", "sm_89"]
    matrix += ["--shape", "x=1x1x32,2x59x32,3x97x32", "--workspace", "1GiB", "--jobs", "2"]
    assert run([*matrix, "--json"]) == 0
    document = _document(capsys)
    assert (document["built"], document["failed"]) == (2, 0)
    for cell in document["cells"]:
        manifest = verify_files(Path(cell["output"]))
        assert manifest.profiles[0]["x"][1] == (2, 59, WIDTH)
        assert manifest.options["workspace"] == 1 << 30
    assert run(matrix) == 0
    assert capsys.readouterr().out.count("IN THE CACHE") == 2


@needs_rtx
def test_inspect_shows_the_manifest_of_an_engine(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*BUILD, "-q"]) == 0
    capsys.readouterr()
    for name in ("m.engine", "m.engine.json"):
        assert run(["inspect", name]) == 0
        text = capsys.readouterr().out
        assert "m.onnx" in text
        assert "The engine is as it was built." in text
    assert run(["inspect", "m.engine", "--json"]) == 0
    document = _document(capsys)
    assert document["kind"] == "engine"
    assert document["header"]["targets"] == ["sm_89", "sm_120"]
    assert document["manifest"]["parity"]["tier"] == "BUILT"


@needs_rtx
def test_inspect_tells_a_damaged_engine(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*BUILD, "-q"]) == 0
    Path("m.engine").write_bytes(b"something else")
    assert run(["inspect", "m.engine"]) == 1
    assert "must have the digest in its manifest" in capsys.readouterr().out
    Path("m.engine").unlink()
    assert run(["inspect", "m.engine"]) == 1


@pytest.mark.parametrize(
    ("name", "engine"),
    [("m.engine", True), ("m.plan.json", True), ("m.onnx", False), ("m.json", False)],
)
def test_engines_and_their_manifests_are_told_by_name(name: str, engine: bool) -> None:
    assert is_engine(Path(name)) is engine


@needs_rtx
def test_an_engine_without_a_gpu_is_checked_and_then_exit_code_three(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("in.npz", x=np.ones((1, 1, WIDTH), np.float16))
    assert run([*BUILD, "-q"]) == 0
    assert run(["run", "m.engine", "--inputs", "in.npz"]) == 3
    assert "needs an NVIDIA GPU and its driver" in capsys.readouterr().err
    Path("m.engine").write_bytes(b"damaged")
    assert run(["run", "m.engine", "--inputs", "in.npz"]) == 2
    assert "digest" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", [".npz", ".pt"])
def test_a_model_runs_and_its_outputs_are_kept(
    home: Path, capsys: pytest.CaptureFixture[str], suffix: str
) -> None:
    from qkexport.input_options import read_inputs

    model = save_native(home / "native.onnx", dtype="float32")
    inputs = {name: np.random.default_rng(0).random((1, 2, 59, 16), np.float32) for name in "qkv"}
    np.savez("in.npz", **inputs)  # type: ignore[arg-type]
    command = ["run", model.name, "--inputs", "in.npz", "--output", f"out{suffix}"]
    assert run([*command, "--json"]) == 0
    document = _document(capsys)
    assert document["outputs"]["y"]["shape"] == [1, 2, 59, 16]
    assert document["outputs"]["y"]["not_finite"] == 0
    kept = np.asarray(read_inputs(Path(f"out{suffix}"))["y"])
    assert kept.min() == pytest.approx(document["outputs"]["y"]["minimum"])
    assert run(command) == 0
    assert "RAN native.onnx on ort-stock" in capsys.readouterr().out


def test_outputs_of_another_kind_of_file_are_refused(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save_native(home / "native.onnx", dtype="float32")
    np.savez("in.npz", **dict.fromkeys("qkv", np.zeros((1, 2, 1, 16), np.float32)))  # type: ignore[arg-type]
    assert run(["run", model.name, "--inputs", "in.npz", "--output", "out.csv"]) == 2
    assert "must go into an .npz or .pt file" in capsys.readouterr().err
