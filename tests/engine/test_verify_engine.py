"""Engines are loaded only with a manifest that fits them, this TensorRT and this GPU."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from engine_models import needs_rtx, save_fused

import qkexport
from qkexport import BuildOptions
from qkexport.engine.bindings import Bindings
from qkexport.engine.device import Gpu
from qkexport.engine.verify import verify_engine, verify_files, verify_plugin
from qkexport.errors import LoadError
from qkexport.manifest import FileRecord, Manifest, manifest_path, read_manifest

pytestmark = needs_rtx

ADA = Gpu("an Ada GPU", "sm_89")


def _bindings(version: str) -> Bindings:
    return cast(Bindings, SimpleNamespace(__version__=version))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("engine")
    options = BuildOptions(targets=("sm_89",))
    qkexport.build(save_fused(folder / "m.onnx"), folder / "m.engine", options=options)
    return folder / "m.engine"


@pytest.fixture
def engine(built: Path, tmp_path: Path) -> Path:
    copy = tmp_path / built.name
    copy.write_bytes(built.read_bytes())
    manifest_path(copy).write_text(manifest_path(built).read_text())
    return copy


def _forge(engine: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes a manifest and gives it a fitting digest again, as a forger would."""
    from qkexport import manifest as module

    path = manifest_path(engine)
    document = json.loads(path.read_text())
    del document["manifest_sha256"]
    change(document)
    document["manifest_sha256"] = module._digest(document)
    path.write_text(json.dumps(document))


def test_an_engine_as_it_was_built_is_accepted(engine: Path) -> None:
    manifest = verify_files(engine)
    assert verify_engine(engine, _bindings(manifest.version), ADA) == manifest


def test_a_changed_engine_is_refused(engine: Path) -> None:
    data = bytearray(engine.read_bytes())
    data[len(data) // 2] ^= 1
    engine.write_bytes(data)
    with pytest.raises(LoadError, match="must have the digest in its manifest"):
        verify_files(engine)


def test_a_truncated_engine_is_refused(engine: Path) -> None:
    engine.write_bytes(engine.read_bytes()[:-1])
    with pytest.raises(LoadError, match="must have the digest in its manifest"):
        verify_files(engine)


def test_an_engine_without_its_manifest_is_refused(engine: Path) -> None:
    manifest_path(engine).unlink()
    with pytest.raises(LoadError, match="must have its manifest beside it"):
        verify_files(engine)


def test_a_missing_engine_is_refused(engine: Path) -> None:
    engine.unlink()
    with pytest.raises(LoadError, match="must exist"):
        verify_files(engine)


def test_a_manifest_that_was_edited_is_refused(engine: Path) -> None:
    path = manifest_path(engine)
    path.write_text(path.read_text().replace("sm_89", "sm_90"))
    with pytest.raises(LoadError, match="must be as it was written, got another digest"):
        read_manifest(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", '{"manifest_sha256": ""}', "\x00"])
def test_a_file_that_is_no_manifest_is_refused(engine: Path, text: str) -> None:
    manifest_path(engine).write_text(text)
    with pytest.raises(LoadError, match="must be one that qkexport build wrote"):
        verify_files(engine)


@pytest.mark.parametrize(
    "change",
    [
        {"targets": ["../../x"]},
        {"targets": ["sm_89 $(touch x)"]},
        {"engine": {"path": "../m.engine", "sha256": "0" * 64}},
        {"plugin": {"path": "/lib/$(touch x).so", "sha256": "0" * 64}},
        {"plugin": {"path": "/lib/..", "sha256": "0" * 64}},
        {"runtime": "tensorrt; x"},
    ],
)
def test_names_that_would_be_paths_or_commands_are_refused(
    engine: Path, change: dict[str, object]
) -> None:
    _forge(engine, lambda document: document.update(change))
    with pytest.raises(LoadError, match="must be one that qkexport build wrote"):
        read_manifest(manifest_path(engine))


_ANYTHING: Final[tuple[object, ...]] = (None, 1, "x", ["a"], [1], [None], {"a": 1}, [[]], [{}])
_FITTING: Final[dict[str, tuple[object, ...]]] = {
    "op_version": (None, 1),
    "attention": (None, "x"),
    "plugin": (None,),
    "onnx_parity": (None,),
    "num_layers": (1,),
    "version": ("x",),
    "runtime": ("x",),
    "created_by": ("x",),
    "targets": (["a"],),
    "precision": (["a"],),
    "options": ({"a": 1},),
}


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Manifest)])
def test_no_field_of_another_type_is_read(engine: Path, field: str) -> None:
    for value in _ANYTHING:
        if value in _FITTING.get(field, ()):
            continue
        _forge(engine, lambda document, value=value: document.update({field: value}))  # type: ignore[misc]
        with pytest.raises(LoadError, match="must be one that qkexport build wrote"):
            read_manifest(manifest_path(engine))


@pytest.mark.parametrize(
    "profile", [{}, {"x": []}, {"x": [[1, 1, 32]] * 2}, {"x": [[1, 32]] * 3}, {"y": [[1]] * 3}]
)
def test_a_profile_that_does_not_fit_the_inputs_is_refused(
    engine: Path, profile: dict[str, object]
) -> None:
    _forge(engine, lambda document: document.update(profiles=[profile]))
    with pytest.raises(LoadError, match="must be one that qkexport build wrote"):
        read_manifest(manifest_path(engine))


@pytest.mark.parametrize("text", ["[" * 100_000, " " * ((1 << 26) + 1)], ids=["deep", "huge"])
def test_a_manifest_that_would_exhaust_its_reader_is_refused(engine: Path, text: str) -> None:
    manifest_path(engine).write_text(text)
    with pytest.raises(LoadError, match="must be one that qkexport build wrote"):
        read_manifest(manifest_path(engine))


def test_a_manifest_of_a_later_schema_is_refused(engine: Path) -> None:
    _forge(engine, lambda document: document.update(schema_version=2))
    with pytest.raises(LoadError, match="this qkexport reads 1"):
        verify_files(engine)


FORGERIES: dict[str, Callable[[dict[str, Any]], None]] = {
    "target": lambda document: document.update(targets=["sm_90"]),
    "version": lambda document: document.update(version="1.8.0.1"),
    "runtime": lambda document: document.update(runtime="tensorrt"),
    "digest": lambda document: document["engine"].update(sha256="0" * 64),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_manifest_is_refused(engine: Path, name: str) -> None:
    _forge(engine, FORGERIES[name])
    with pytest.raises(LoadError, match=r"must say what the engine says|must have the digest"):
        verify_files(engine)


def test_another_version_of_tensorrt_is_refused(engine: Path) -> None:
    with pytest.raises(LoadError, match=r"must be loaded by tensorrt-rtx \S+, got 9\.9"):
        verify_engine(engine, _bindings("9.9"), ADA)


def test_another_gpu_is_refused_with_the_target_to_build_for(engine: Path) -> None:
    version = verify_files(engine).version
    with pytest.raises(LoadError, match="must run on sm_89, got sm_120") as caught:
        verify_engine(engine, _bindings(version), Gpu("a Blackwell GPU", "sm_120"))
    assert "--target sm_120" in str(caught.value)


def test_another_plugin_library_is_refused(engine: Path, tmp_path: Path) -> None:
    library = tmp_path / "plugin.so"
    library.write_bytes(b"another build")
    manifest: Manifest = verify_files(engine)
    verify_plugin(manifest, library)  # this engine needs none
    with_plugin = dataclasses.replace(manifest, plugin=FileRecord("plugin.so", "0" * 64))
    with pytest.raises(LoadError, match="must be the one the engine was built with"):
        verify_plugin(with_plugin, library)
