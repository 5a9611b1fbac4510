"""Paths that an engine cannot or must not go to are refused before anything is built."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from qkexport.engine.output import check_engine_output, check_output_folder
from qkexport.errors import UsageError


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"model")
    return path


def test_new_files_and_new_folders_are_fine(tmp_path: Path, model: Path) -> None:
    check_engine_output(tmp_path / "model.engine", model)
    check_engine_output(tmp_path / "new folder" / "deeper" / "model.plan", model)
    assert sorted(tmp_path.iterdir()) == [model]


def test_an_older_engine_may_be_replaced(tmp_path: Path, model: Path) -> None:
    (tmp_path / "model.engine").touch()
    check_engine_output(tmp_path / "model.engine", model)


def test_a_relative_path_of_one_part_is_fine(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check_engine_output(Path("model.engine"), Path("model.onnx"))


@pytest.mark.parametrize("name", ["model.onnx", "model", "engine", "model.engine.json"])
def test_a_name_of_another_kind_of_file_is_refused(tmp_path: Path, model: Path, name: str) -> None:
    with pytest.raises(UsageError, match="must be named like an engine"):
        check_engine_output(tmp_path / name, model)


def test_a_folder_is_refused(tmp_path: Path, model: Path) -> None:
    (tmp_path / "model.engine").mkdir()
    with pytest.raises(UsageError, match="must be a file, got the folder"):
        check_engine_output(tmp_path / "model.engine", model)


def test_the_model_itself_is_refused_by_any_of_its_names(tmp_path: Path) -> None:
    model = tmp_path / "model.engine"
    model.write_bytes(b"model")
    (tmp_path / "link.engine").symlink_to("model.engine")
    (tmp_path / "second.engine").hardlink_to(model)
    for name in ("model.engine", "link.engine", "second.engine"):
        with pytest.raises(UsageError, match="must be another file than the model"):
            check_engine_output(tmp_path / name, model)


def test_a_folder_below_a_file_is_refused(tmp_path: Path, model: Path) -> None:
    with pytest.raises(UsageError, match="must go into a folder, got the file"):
        check_engine_output(model / "deeper" / "model.engine", model)


def test_a_folder_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != tmp_path)  # root may all
    with pytest.raises(UsageError, match="that can be written") as caught:
        check_output_folder(tmp_path / "new" / "folder")
    assert str(tmp_path) in caught.value.message
