"""A file that is not there is refused with where it may be instead, by every command alike."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

from qkexport.cli.run import run
from qkexport.errors import LoadError
from qkexport.missing_file import require_file


def _hint(path: Path) -> str:
    with pytest.raises(LoadError) as caught:
        require_file("Model", path)
    assert caught.value.hint is not None
    return caught.value.hint


def test_a_file_that_is_there_passes(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    require_file("Model", tmp_path / "model.onnx")


def test_a_name_that_is_nearly_right_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    assert _hint(tmp_path / "modle.onnx") == f"did you mean {tmp_path / 'model.onnx'}?"


def test_files_of_that_kind_are_named(tmp_path: Path) -> None:
    for name in ("d.onnx", "a.onnx", "c.onnx", "b.onnx", "e.txt"):
        (tmp_path / name).touch()
    assert _hint(tmp_path / "something.onnx") == f"{tmp_path} holds a.onnx, b.onnx, c.onnx, ..."


def test_a_folder_without_such_files_is_named(tmp_path: Path) -> None:
    assert _hint(tmp_path / "m.onnx") == f"{tmp_path} holds no .onnx file; check the path."


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    hint = _hint(tmp_path / "gone" / "m.onnx")
    assert hint == f"there is no folder {tmp_path / 'gone'}; check the path."


def test_a_relative_path_is_told_from_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert _hint(Path("gone/m.onnx")).endswith(f"relative paths start at {tmp_path}.")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="must be a file, got the folder"):
        require_file("Model", tmp_path)


COMMANDS: Final = {
    "build": ["build", "none.onnx", "-o", "m.engine"],
    "bench": ["bench", "none.onnx"],
    "bench inputs": ["bench", "model.onnx", "--inputs", "none.npz"],
    "convert": ["convert", "none.onnx", "-o", "m.onnx"],
    "inspect": ["inspect", "none.onnx"],
    "inspect of an engine": ["inspect", "none.engine"],
    "inspect with a picture": ["inspect", "none.onnx", "--graph", "g.svg"],
    "parity": ["parity", "none.onnx", "model.onnx"],
    "parity candidate": ["parity", "model.onnx", "none.onnx"],
    "parity replay": ["parity", "model.onnx", "model.onnx", "--replay", "none.pt"],
    "run": ["run", "none.onnx", "--inputs", "none.npz"],
    "run of an engine": ["run", "none.engine", "--inputs", "none.npz"],
    "run inputs": ["run", "model.onnx", "--inputs", "none.npz"],
}


@pytest.mark.parametrize("case", COMMANDS)
def test_every_command_says_what_to_do(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"\x08\x0a")
    assert run([*COMMANDS[case], "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["message"].rpartition(" ")[2].removesuffix(".").startswith("none")
    assert error["hint"]
