"""`qkexport convert FOLDER --kv-cache ...` as scripts use it, and parity of what it writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.utils import logging as transformers_logging
from zoo.language import causal_lm

from qkexport.cli.run import run

transformers_logging.disable_progress_bar()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    torch.manual_seed(0)
    model: Any = causal_lm("qwen3", "sdpa", num_hidden_layers=1).module
    model.save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_becomes_a_checked_model_with_a_cache_that_parity_knows_again(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["convert", "model", "-o", "m.onnx", "--kv-cache", "concat", "--json"]
    assert run([*arguments, "--require-fused", "all"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert (document["fused"], document["found"]) == (1, 1)
    cases = document["verified"]["cases"]
    assert [case["case"] for case in cases] == ["prompt", "token", "piece of a prompt"]
    assert cases[0]["shapes"]["past_key_values.0.key"] == [1, 2, 0, 16]
    assert "Loading weights" not in printed.err
    assert run(["inspect", "m.onnx"]) == 0
    text = capsys.readouterr().out
    assert "past_key_values.0.key" in text
    assert run(["parity", "model", "m.onnx", "--backend", "ort-stock", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (candidate,) = document["candidates"]
    assert [case["label"] for case in candidate["cases"]] == [case["case"] for case in cases]


def test_what_a_folder_may_not_do_needs_a_flag(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((home / "model" / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoModelForCausalLM": "mine.Mine"}}
    (home / "model" / "config.json").write_text(json.dumps(config))
    assert run(["convert", "model", "-o", "m.onnx"]) == 2
    error = capsys.readouterr().err
    assert "must not bring its own code" in error
    assert "--trust-remote-code" in error
    assert not (home / "m.onnx").exists()


def test_an_unknown_kind_of_cache_is_a_usage_error(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["convert", "model", "-o", "m.onnx", "--kv-cache", "paged"]) == 2
    assert "concat" in capsys.readouterr().err
