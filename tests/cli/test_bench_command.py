"""`qkexport bench` as scripts and people use it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from engine_models import needs_rtx, save_fused, save_native
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from qkexport.cli.run import run


class Attention(nn.Module):
    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return scaled_dot_product_attention(q, k, v)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    save_native(tmp_path / "m.onnx", dtype="float32")
    seq = torch.export.Dim("seq", min=1)
    q = torch.randn(1, 2, 59, 16)
    program = torch.export.export(Attention(), (q, q, q), dynamic_shapes=[{2: seq}] * 3)
    torch.export.save(program, tmp_path / "m.pt2")
    return tmp_path


def _document(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


QUICK = ["--runs", "3", "--warm-up", "0", "--threads", "1"]


def test_files_stand_side_by_side(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "m.pt2", "m.onnx", *QUICK, "--json"]) == 0
    document = _document(capsys)
    assert (document["schema_version"], document["command"]) == (1, "bench")
    assert document["inputs"] == {name: [1, 2, 59, 16] for name in "qkv"}
    torch_run, ort_run = document["contenders"]
    assert (torch_run["file"], torch_run["backend"]) == ("m.pt2", "torch")
    assert (ort_run["file"], ort_run["backend"]) == ("m.onnx", "ort-stock")
    for each in (torch_run, ort_run):
        assert each["verdict"] == "RAN"
        latency = each["latency"]
        assert 0 < latency["minimum"] <= latency["p50"] <= latency["p90"] <= latency["p99"]
        assert latency["runs"] == 3
        assert each["first_seconds"] > 0
        assert each["load_seconds"] > 0
    assert torch_run["speedup"] == 1
    assert document["threads"] == 1


def test_people_see_a_table(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "m.onnx", "--input", "q=1,2,97,16", *QUICK]) == 0
    text = capsys.readouterr().out
    assert "q [1, 2, 97, 16]" in text
    assert "p99 ms" in text
    assert "RAN" in text


@needs_rtx
def test_a_backend_that_is_absent_is_skipped_or_required(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_fused(home / "f.onnx")
    target = ["--target", "sm_89", "--shape", "x=1x1x32,1x5x32,1x9x32", "-q"]
    assert run(["build", "f.onnx", "-o", "f.engine", *target]) == 0
    assert run(["bench", "f.engine", *QUICK]) == 3
    assert "needs an NVIDIA GPU and its driver" in capsys.readouterr().err


def test_one_that_fails_does_not_hide_the_others(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / "bad.onnx").write_bytes(b"\0garbage" * 9)
    assert run(["bench", "m.onnx", "bad.onnx", *QUICK, "--json"]) == 1
    good, bad = _document(capsys)["contenders"]
    assert good["verdict"] == "RAN"
    assert bad["verdict"] == "FAILED"
    assert "must load on ort-stock" in bad["reason"] or "bad.onnx" in bad["reason"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.onnx"], "File must exist, got none.onnx"),
        (["m.onnx", "--backend", "cuda"], "must be a known one, got 'cuda'"),
        (["m.onnx", "--backend", "plugin"], "says nothing about a GPU"),
        (["m.onnx", "--backend", "torch"], "it runs on ort-stock, ort"),
        (["m.onnx", "m.pt2", "--backend", "torch"], "Backends must be able to run m.onnx"),
        (["m.onnx", "--backend", "ort-stock,tensorrt"], "a file to run, got none for tensorrt"),
        (["m.onnx", "--runs", "0"], "x>=1"),
        (["m.onnx", "--input", "q"], "--input must be NAME=SHAPE"),
        (["m.onnx", "--inputs", "none.npz"], "--inputs file must exist"),
        (["m.onnx", "--input", "z=1"], "no input of that name, got 'z'"),
        ([], "Missing argument 'FILE...'"),
    ],
)
def test_wrong_usage_is_exit_code_two(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(["bench", *arguments]) == 2
    assert said in capsys.readouterr().err
