"""Failing inputs survive a round trip; files of other kinds are refused."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

from qkexport.errors import UsageError
from qkexport.proof.replay import Replay, load_replay, save_replay


def test_a_replay_survives_the_round_trip(tmp_path: Path) -> None:
    inputs = {
        "ids": torch.arange(6).reshape(2, 3),
        "x": torch.randn(2, 3).bfloat16().T,
        "mask": torch.tensor([True, False]),
    }
    path = save_replay(
        Replay("model.pt2", "dir/model.onnx", "ort-stock", "odd normal", inputs), tmp_path / "new"
    )
    assert path.name == "model-ort-stock-odd-normal.pt"
    loaded = load_replay(path)
    assert loaded.reference == "model.pt2"
    assert loaded.candidate == "dir/model.onnx"
    assert loaded.label == "odd normal"
    assert all(torch.equal(loaded.inputs[name], x) for name, x in inputs.items())
    assert loaded.inputs["x"].dtype is torch.bfloat16


def test_a_label_cannot_leave_the_folder(tmp_path: Path) -> None:
    path = save_replay(Replay("m", "c.onnx", "ort", "../../etc/x", {}), tmp_path)
    assert path.parent == tmp_path


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--replay file must exist"):
        load_replay(tmp_path / "none.pt")


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"w": torch.ones(3)}, path)
    with pytest.raises(UsageError, match="must be a file that parity saved, got another kind"):
        load_replay(path)


def test_code_in_a_replay_is_not_run(tmp_path: Path) -> None:
    class Exploit:
        def __reduce__(self) -> tuple[object, ...]:
            return Path.touch, (tmp_path / "ran",)

    path = tmp_path / "evil.pt"
    path.write_bytes(pickle.dumps(Exploit()))
    with pytest.raises(UsageError, match="must be a file that parity saved"):
        load_replay(path)
    assert not (tmp_path / "ran").exists()
