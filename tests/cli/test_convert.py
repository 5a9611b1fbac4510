"""`qkexport convert` and `inspect` as scripts and people use them."""

from __future__ import annotations

import errno
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import untrusted_files as files
from qk_norm_models import MaskedAttention, VisionAttention

from qkexport.cli.run import run

IMAGE = ["qk_norm_models:VisionAttention", "--input", "x=2,7,24"]
IDS = ["qk_norm_models:MaskedAttention", "--input", "ids=2,7:int64"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _document(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_a_factory_is_converted_and_the_report_tells_all(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["convert", *IMAGE, "-o", "m.onnx", "--require-fused", "all"]) == 0
    text = capsys.readouterr().out
    assert "layer norm over head" in text
    assert "1 of 1 QK-norm attentions fused" in text
    assert "MATCHED the source" in text
    assert "WRITTEN m.onnx (portable, opset 24, for ort)" in text
    assert [file.name for file in home.iterdir()] == ["m.onnx"]


def test_the_json_document_keeps_the_contract(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["convert", *IMAGE, "-o", "m.onnx", "--json"]) == 0
    document = _document(capsys)
    assert document["schema_version"] == 1
    assert (document["fused"], document["found"]) == (1, 1)
    assert document["output"] == "m.onnx"
    assert document["attentions"][0]["status"] == "fused"
    assert document["verified"]["passed"] is True
    assert document["verified"]["max_abs_error"] < 1e-5


def test_too_few_fused_attentions_are_exit_code_one_and_no_file(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["convert", *IMAGE, "-o", "m.onnx", "--require-fused", "2", "--json"]) == 1
    document = _document(capsys)
    assert (document["output"], document["required"]) == (None, 2)
    assert not (home / "m.onnx").exists()
    assert run(["convert", *IMAGE, "-o", "m.onnx", "--require-fused", "2"]) == 1
    text = capsys.readouterr().out
    assert "1 of 1 QK-norm attentions fused, 2 required" in text
    assert "NOT WRITTEN" in text


def test_all_options_of_shape_and_type_reach_the_model(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--dynamic", "ids:0=batch", "--dynamic", "ids:1=seq:1:64", "--dtype", "float16"]
    options += ["--form", "native", "--runtime", "tensorrt", "--opset", "23"]
    assert run(["convert", *IDS, *options, "-o", "m.onnx", "--json"]) == 0
    document = _document(capsys)
    assert (document["form"], document["runtime"], document["opset"]) == ("native", "tensorrt", 23)
    shapes = [case["shapes"]["ids"] for case in document["verified"]["cases"]]
    assert shapes == [[2, 7], [1, 1], [3, 21]]
    assert run(["inspect", "m.onnx", "--json"]) == 0
    assert list(_document(capsys)["outputs"].values()) == ["float16[batch,seq,59]"]


@pytest.mark.parametrize("suffix", ["npz", "pt"])
def test_inputs_come_from_a_file(
    home: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if suffix == "npz":
        np.savez(home / "in.npz", ids=np.arange(10).reshape(2, 5))
    else:
        torch.save({"ids": torch.arange(10).reshape(2, 5)}, home / "in.pt")
    source = "qk_norm_models:MaskedAttention"
    assert run(["convert", source, "--inputs", f"in.{suffix}", "-o", "m.onnx", "--json"]) == 0
    labels = [case["case"] for case in _document(capsys)["verified"]["cases"]]
    assert labels == ["given", "traced"]


def test_no_verify_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["convert", *IMAGE, "-o", "m.onnx", "--no-verify", "--json"]) == 0
    assert _document(capsys)["verified"] is None
    assert run(["convert", *IMAGE, "-o", "m.onnx", "--no-verify"]) == 0
    assert "not verified" in capsys.readouterr().out


def test_a_pickled_module_needs_the_flag(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "m.pt").write_bytes(files.saved_bytes(VisionAttention()))
    arguments = ["convert", "m.pt", "--input", "x=2,7,24", "-o", "m.onnx"]
    assert run(arguments) == 2
    error = capsys.readouterr().err
    assert "only unpickled with --allow-pickle" in error
    assert "nothing was unpickled" in error
    assert run([*arguments, "--allow-pickle"]) == 0


def test_an_exported_program_needs_no_inputs(home: Path) -> None:
    program = torch.export.export(VisionAttention().eval(), (torch.randn(2, 7, 24),))
    torch.export.save(program, home / "m.pt2")
    assert run(["convert", "m.pt2", "-o", "m.onnx", "--require-fused", "1"]) == 0


def test_missing_inputs_are_named_with_the_flag(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["convert", "qk_norm_models:MaskedAttention", "-o", "m.onnx"]) == 2
    error = capsys.readouterr().err
    assert "got none for ['ids']" in error
    assert "--input ids=SHAPE:DTYPE" in error


USAGE: dict[str, tuple[list[str], str]] = {
    "missing source": (["nothing.onnx"], "Source must exist, got nothing.onnx"),
    "malformed input": ([*IMAGE, "--input", "x"], "--input must be NAME=SHAPE"),
    "malformed axis": ([*IMAGE, "--dynamic", "x"], "--dynamic must be NAME:AXIS"),
    "unknown axis name": ([*IMAGE, "--dynamic", "y:0=n"], "no input of that name, got 'y'"),
    "unknown form": ([*IMAGE, "--form", "tiny"], "'tiny' is not one of"),
    "opset too low": ([*IMAGE, "--opset", "16"], "16 is not in the range"),
    "count that is none": ([*IMAGE, "--require-fused", "-3"], "count or 'all', got '-3'"),
    "inputs that are missing": ([*IMAGE, "--inputs", "in.npz"], "--inputs file must exist"),
    "portable for tensorrt": ([*IMAGE, "--runtime", "tensorrt"], "must be fused or native"),
}


@pytest.mark.parametrize("name", USAGE)
def test_a_wrong_request_is_exit_code_two(
    name: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = USAGE[name]
    assert run(["convert", *arguments, "-o", "m.onnx"]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""
    assert not (home / "m.onnx").exists()


def test_a_model_that_cannot_be_exported_is_exit_code_one(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "branching.py").write_text(
        "import torch\n"
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        return x if x.sum() > 0 else -x\n"
    )
    assert run(["convert", "branching:Model", "--input", "x=2", "-o", "m.onnx"]) == 1
    error = capsys.readouterr().err
    assert "must be exportable by torch.export" in error
    assert "branching.py:4" in error


def test_a_full_disk_is_an_error_and_leaves_what_was_there(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "m.onnx").write_bytes(b"precious")
    full = OSError(errno.ENOSPC, "No space left on device", "m.onnx")
    monkeypatch.setattr("qkexport.staging.save_model", lambda *_: _raise(full))
    assert run(["convert", *IMAGE, "-o", "m.onnx"]) == 1
    error = capsys.readouterr().err
    assert "Error: [Errno 28] No space left on device" in error
    assert "Internal" not in error
    assert [file.name for file in home.iterdir()] == ["m.onnx"]
    assert (home / "m.onnx").read_bytes() == b"precious"


def _raise(error: Exception) -> None:
    raise error


def test_a_missing_runtime_is_exit_code_three_and_the_check_can_be_left_out(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert run(["convert", *IMAGE, "-o", "m.onnx"]) == 3
    assert "pip install 'qkexport[cpu]'" in capsys.readouterr().err
    assert list(home.iterdir()) == []
    assert run(["convert", *IMAGE, "-o", "m.onnx", "--no-verify"]) == 0


def test_inspect_lists_what_convert_would_fuse(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from qkexport.trace import exporter_noise_logged

    with exporter_noise_logged():
        torch.onnx.export(
            MaskedAttention().eval(), (torch.zeros(2, 7, dtype=torch.int64),), home / "raw.onnx"
        )
    assert run(["inspect", "raw.onnx", "--json"]) == 0
    document = _document(capsys)
    assert (document["form"], document["fused"], document["fusable"]) == ("plain", 0, 1)
    assert document["attentions"][0]["status"] == "fusable"
    assert run(["convert", "raw.onnx", "-o", "m.onnx"]) == 0
    capsys.readouterr()
    assert run(["inspect", "m.onnx"]) == 0
    text = capsys.readouterr().out
    assert "m.onnx: portable" in text
    assert "input  ids int64[2,7]" in text
    assert "1 of 1 QK-norm attentions fused, 0 could be" in text


@pytest.mark.parametrize(("name", "message"), [("m.pt2", "Only .onnx files"), ("m.onnx", "exist")])
def test_inspect_refuses_other_files(
    home: Path, name: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "m.pt2").write_bytes(b"x")
    assert run(["inspect", name]) == 2
    assert message in capsys.readouterr().err
