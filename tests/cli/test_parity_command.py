"""`qkexport parity` as scripts and people use it: exit codes, one JSON document, reports."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from xml.etree import ElementTree as ET

import jsonschema
import numpy as np
import onnx_ir as ir
import pytest
import torch
from qk_norm_models import VisionAttention

from qkexport.cli.run import run
from qkexport.errors import BackendUnavailableError
from qkexport.load import TorchSource
from qkexport.proof import candidate
from qkexport.report.json import parity_schema
from qkexport.report.self_test_files import self_test_schema
from qkexport.trace import trace


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program, its export, and the same with a value off by a little."""
    folder = tmp_path_factory.mktemp("parity")
    torch.manual_seed(5)
    module, x = VisionAttention().eval(), torch.randn(2, 7, 24)
    torch.export.save(torch.export.export(module, (x,)), folder / "model.pt2")
    model = trace(TorchSource("vit", module, (x,)), opset=24).model
    ir.save(model, folder / "model.onnx")
    name = next(name for name in model.graph.initializers if "q_norm.weight" in name)
    value = model.graph.initializers[name]
    assert value.const_value is not None
    value.const_value = ir.tensor(value.const_value.numpy() * 1.001, name=name)
    ir.save(model, folder / "wrong.onnx")
    return folder


@pytest.fixture
def home(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_match_exits_0(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["parity", "model.pt2", "model.onnx"]) == 0
    text = capsys.readouterr().out
    assert "MATCHED model.onnx on ort-stock" in text
    assert "2 x PyTorch's float32 error" in text
    assert not (home / "parity-failures").exists()


def test_a_mismatch_exits_1_and_can_be_replayed(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["parity", "model.pt2", "wrong.onnx", "--failures", "bad"]) == 1
    assert "MISMATCHED wrong.onnx on ort-stock" in capsys.readouterr().out
    saved = sorted(map(str, Path("bad").iterdir()))
    assert saved
    assert run(["parity", "--replay", saved[0]]) == 1
    assert "MISMATCHED wrong.onnx on ort-stock" in capsys.readouterr().out
    assert run(["parity", "model.pt2", "model.onnx", "--replay", saved[0]]) == 0
    assert sorted(map(str, Path("bad").iterdir())) == saved


def test_json_is_one_document_that_fits_the_schema(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["parity", "model.pt2", "model.onnx", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    jsonschema.validate(document, parity_schema())
    assert document["passed"] is True
    assert document["command"] == "parity"


def test_reports_are_written_when_the_result_is_no(home: Path) -> None:
    names = ["r.html", "r.json", "r.xml", "r.md"]
    options = [part for name in names for part in ("--report", name)]
    assert run(["parity", "model.pt2", "wrong.onnx", *options]) == 1
    assert all((home / name).stat().st_size for name in names)
    assert ET.parse(home / "r.xml").find(".//failure") is not None
    assert not json.loads((home / "r.json").read_text())["passed"]


def test_a_required_backend_that_is_absent_exits_3_with_the_report_written(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: object) -> object:
        raise BackendUnavailableError("The plugin must be built, got none.")

    monkeypatch.setattr(candidate, "open_runner", absent)
    options = ["--require", "plugin", "--report", "r.json", "--json"]
    assert run(["parity", "model.pt2", "model.onnx", *options]) == 3
    document = json.loads(capsys.readouterr().out)
    assert "Required backends must be here, got none for plugin" in document["error"]["message"]
    assert json.loads((home / "r.json").read_text())["absent_backends"] == ["plugin"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "Parity needs a reference and a candidate"),
        (["model.pt2"], "Parity needs a candidate, got none"),
        (["model.pt2", "gone.onnx"], "Candidate must exist, got gone.onnx"),
        (["model.pt2", "model.onnx", "--map", "x"], "--map must be CANDIDATE=REFERENCE, got 'x'"),
        (["model.pt2", "model.onnx", "--report", "r.doc"], "--report must end in"),
        (["model.pt2", "model.onnx", "--backend", "trt"], "Backend must be a known one"),
        (["model.pt2", "--self-test", "--require", "ort"], "--self-test must go without other"),
        (["model.pt2", "--self-test", "--report", "r.doc"], "--report must end in"),
        (["model.pt2", "--self-test", "--layers", "--rtol", "1"], "got --rtol, --layers"),
        (["model.pt2", "model.onnx", "--mutant", "softcap"], "--mutant must go with --self-test"),
        (["model.pt2", "model.onnx", "--suite", "all"], "Invalid value for '--suite'"),
        (["model.pt2", "model.onnx", "--dynamic", "x:1=s"], "--dynamic must go with an nn.Module"),
    ],
)
def test_a_wrong_request_exits_2(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert run(["parity", *arguments]) == 2
    assert text in capsys.readouterr().err


def test_a_self_test_writes_reports_too(home: Path) -> None:
    reports = [f"r{suffix}" for suffix in (".json", ".xml", ".md", ".html")]
    options = [text for name in reports for text in ("--report", name)]
    assert run(["parity", "model.pt2", "--self-test", "--mutant", "swap-heads", *options]) == 0
    document = json.loads((home / "r.json").read_text())
    jsonschema.validate(document, self_test_schema())
    assert (document["kill_rate"], document["applied"]) == (1, 1)
    assert "swap-heads" in (home / "r.xml").read_text()
    assert "1 of 1 mutants killed" in (home / "r.md").read_text()
    assert "1 of 1 mutants killed" in (home / "r.html").read_text()


def test_a_given_file_of_inputs_is_tried(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"x": torch.randn(2, 7, 24)}, "x.pt")
    np.savez("x.npz", x=np.random.default_rng(0).normal(size=(2, 7, 24)).astype(np.float32))
    for file in ("x.pt", "x.npz"):
        assert run(["parity", "model.pt2", "model.onnx", "--inputs", file, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert [case["label"] for case in document["candidates"][0]["cases"]] == ["given"]


def test_an_interrupted_run_exits_130_and_leaves_nothing_behind(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object, **__: object) -> object:
        raise KeyboardInterrupt

    temporary = home / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(candidate, "compare_outputs", interrupt)
    before = sorted(home.iterdir())
    options = ["--backend", "torch,ort-stock", "--report", "r.json"]
    assert run(["parity", "model.pt2", "model.onnx", *options]) == 130
    assert sorted(home.iterdir()) == before
    assert list(temporary.iterdir()) == []
    assert "Traceback" not in capsys.readouterr().err
