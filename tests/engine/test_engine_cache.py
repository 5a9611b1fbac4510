"""Engines that are not built twice, and entries that cannot be half there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from engine_models import needs_rtx, save_fused, spec_with

import qkexport
from qkexport import BuildOptions
from qkexport.engine.cache import EngineCache
from qkexport.engine.options import parse_shapes
from qkexport.engine.verify import verify_files

pytestmark = needs_rtx

OPTIONS = BuildOptions(targets=("sm_89",))


def _build(model: Path, output: Path, options: BuildOptions = OPTIONS) -> bool:
    result = qkexport.build(model, output, options=options, cache=output.parent / "cache")
    assert result
    assert verify_files(output) == result.manifest
    return result.cached


def test_the_same_inputs_are_built_once_whatever_they_are_called(tmp_path: Path) -> None:
    model = save_fused(tmp_path / "model.onnx")
    assert not _build(model, tmp_path / "one.engine")
    renamed = shutil.copy(model, tmp_path / "renamed.onnx")
    assert _build(Path(renamed), tmp_path / "two.engine")
    assert (tmp_path / "one.engine").read_bytes() == (tmp_path / "two.engine").read_bytes()


def test_whatever_shapes_the_engine_is_in_the_key(tmp_path: Path) -> None:
    model = save_fused(tmp_path / "model.onnx")
    _build(model, tmp_path / "first.engine")
    changes: tuple[dict[str, Any], ...] = (
        {"targets": ("sm_120",)},
        {"workspace": 1 << 30},
        {"profiles": parse_shapes(["x=1x1x32,2x59x32,3x97x32"])},
    )
    for change in changes:
        options = BuildOptions(**{"targets": ("sm_89",), **change})
        assert not _build(model, tmp_path / "other.engine", options)
    other = save_fused(tmp_path / "other.onnx", spec_with(scale=0.5))
    assert not _build(other, tmp_path / "other.engine")


def test_a_damaged_entry_is_told_and_built_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = save_fused(tmp_path / "model.onnx")
    _build(model, tmp_path / "one.engine")
    (entry,) = (tmp_path / "cache").glob("*/*/model.engine")
    entry.unlink()
    entry.write_bytes(b"not an engine")
    assert not _build(model, tmp_path / "two.engine")
    assert "is damaged and is built again" in caplog.text
    assert _build(model, tmp_path / "three.engine")


def test_an_entry_without_its_manifest_is_damaged(tmp_path: Path) -> None:
    model = save_fused(tmp_path / "model.onnx")
    _build(model, tmp_path / "one.engine")
    (manifest,) = (tmp_path / "cache").glob("*/*/model.engine.json")
    manifest.unlink()
    assert not _build(model, tmp_path / "two.engine")


def test_a_second_store_of_one_engine_changes_nothing(tmp_path: Path) -> None:
    _build(save_fused(tmp_path / "model.onnx"), tmp_path / "one.engine")
    cache = EngineCache(tmp_path / "cache")
    (entry,) = cache.root.glob("*/*")
    cache.store(entry.name, tmp_path / "one.engine")
    assert [path.name for path in cache.root.rglob("*.engine")] == ["model.engine"]
    assert list(cache.root.glob(".*.partial")) == []


def test_what_a_killed_store_left_is_removed_by_the_next(tmp_path: Path) -> None:
    left = tmp_path / "cache" / ".999999999.abc.partial"
    left.mkdir(parents=True)
    (left / "model.engine").write_bytes(b"half")
    _build(save_fused(tmp_path / "model.onnx"), tmp_path / "one.engine")
    assert not left.exists()


def test_an_engine_that_the_cache_cannot_keep_is_built_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = save_fused(tmp_path / "model.onnx")
    (tmp_path / "cache").write_bytes(b"not a folder")
    assert not _build(model, tmp_path / "one.engine")
    assert "the engine is not kept in the cache" in caplog.text
