"""A bundle holds all that a server needs, whole or not at all."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
from pathlib import Path

import pytest
from engine_models import needs_rtx, save_fused
from served_models import MANIFEST, served

import qkexport
from qkexport import BuildOptions
from qkexport.bundle import layout, write_bundle
from qkexport.bundle.readme import readme_text, serve_script
from qkexport.cli.run import run
from qkexport.engine.verify import verify_files
from qkexport.errors import LoadError, UsageError
from qkexport.files import sha256_of
from qkexport.manifest import FileRecord


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("engines")
    model = save_fused(folder / "m.onnx")
    built = []
    for target in ("sm_89", "sm_120"):
        output = folder / f"m.{target}.engine"
        qkexport.build(model, output, options=BuildOptions(targets=(target,)))
        built.append(output)
    return built


@needs_rtx
def test_a_bundle_holds_engines_manifests_repository_and_runner(
    tmp_path: Path, engines: list[Path]
) -> None:
    bundle = write_bundle(tmp_path / "bundle", engines)
    assert bundle.models == ("m",)
    for path in (bundle.folder / "engines").glob("*.engine"):
        verify_files(path)
    for path in (bundle.folder / "triton" / "m" / "1").glob("*.engine"):
        verify_files(path)
    assert set(bundle.files) == {
        "README.md",
        "cpp/CMakeLists.txt",
        "cpp/run_engine.cc",
        "engines/m.sm_120.engine",
        "engines/m.sm_120.engine.json",
        "engines/m.sm_89.engine",
        "engines/m.sm_89.engine.json",
        "serve.sh",
        "triton/m/1/m.sm_120.engine",
        "triton/m/1/m.sm_120.engine.json",
        "triton/m/1/m.sm_89.engine",
        "triton/m/1/m.sm_89.engine.json",
        "triton/m/1/model.py",
        "triton/m/config.pbtxt",
    }
    index = json.loads((bundle.folder / "bundle.json").read_text())
    assert index["files"] == bundle.files
    for name, digest in bundle.files.items():
        assert sha256_of(bundle.folder / name) == digest


@needs_rtx
def test_a_bundle_replaces_an_earlier_one_and_nothing_else(
    tmp_path: Path, engines: list[Path]
) -> None:
    folder = tmp_path / "bundle"
    write_bundle(folder, engines)
    write_bundle(folder, engines[:1])
    assert len(list((folder / "engines").glob("*.engine"))) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter").write_text("years of work")
    with pytest.raises(UsageError, match="must go into a new folder or replace a bundle"):
        write_bundle(tmp_path / "thesis", engines)
    assert (tmp_path / "thesis" / "chapter").read_text() == "years of work"


@needs_rtx
def test_a_failure_leaves_the_earlier_bundle(
    tmp_path: Path, engines: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bundle"
    before = write_bundle(folder, engines).files

    def fail(*_: object) -> str:
        raise OSError("disk full")

    monkeypatch.setattr(layout, "readme_text", fail)
    with pytest.raises(OSError, match="disk full"):
        write_bundle(folder, engines[:1])
    assert layout._digests(folder) == {**before, "bundle.json": sha256_of(folder / "bundle.json")}
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


@needs_rtx
def test_a_damaged_engine_is_not_bundled(tmp_path: Path, engines: list[Path]) -> None:
    copy = tmp_path / "m.engine"
    copy.write_bytes(b"damaged")
    (tmp_path / "m.engine.json").write_text(Path(f"{engines[0]}.json").read_text())
    with pytest.raises(LoadError, match="digest"):
        write_bundle(tmp_path / "bundle", [copy])
    assert not (tmp_path / "bundle").exists()


def test_engines_of_different_models_of_one_name_are_refused() -> None:
    other = dataclasses.replace(MANIFEST, onnx=FileRecord("m.onnx", "2" * 64))
    with pytest.raises(UsageError, match="must come from one model and runtime, got 2 kinds"):
        layout._served_models({Path("a"): MANIFEST, Path("b"): other})


@pytest.mark.parametrize("name", ["an engine.engine", "a;b.engine", "-rf.engine", "$x.engine"])
def test_engines_whose_names_are_no_words_of_a_script_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="must have names that are words"):
        layout._served_models({Path(name): MANIFEST})


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for the installed plugin library."""
    path = tmp_path / "installed" / "libqkexport_trt.so"
    path.parent.mkdir()
    path.write_bytes(b"plugin")
    monkeypatch.setenv("QKEXPORT_LIBRARY_DIR", str(path.parent))
    return path


def test_a_forged_manifest_brings_no_library_of_its_own(tmp_path: Path, library: Path) -> None:
    foreign = tmp_path / "libqkexport_trt.so"
    foreign.write_bytes(b"foreign")
    record = FileRecord(str(foreign), sha256_of(foreign))
    with pytest.raises(LoadError, match="must be the one the engine was built with") as caught:
        layout._copy_plugin([served(plugin=record)], tmp_path / "bundle")
    assert str(library) in str(caught.value)
    assert not (tmp_path / "bundle").exists()


def test_the_installed_library_is_copied_whatever_path_a_manifest_names(
    tmp_path: Path, library: Path
) -> None:
    record = FileRecord("/build/machine/lib/libother.so", sha256_of(library))
    place = layout._copy_plugin([served(plugin=record)], tmp_path / "bundle")
    assert place == "plugin/libqkexport_trt.so"
    assert (tmp_path / "bundle" / place).read_bytes() == b"plugin"


def test_the_plugin_library_comes_along_and_is_loaded_first(tmp_path: Path, library: Path) -> None:
    record = FileRecord(str(library), sha256_of(library))
    place = layout._copy_plugin([served(plugin=record)], tmp_path / "bundle")
    assert place == "plugin/libqkexport_trt.so"
    assert (tmp_path / "bundle" / place).read_bytes() == b"plugin"
    assert 'tensorrt,plugins="$here/plugin/libqkexport_trt.so"' in serve_script(place)
    text = readme_text([served(plugin=record)], place)
    assert "--plugin plugin/libqkexport_trt.so" in text
    assert "TensorRT must be version 11.4.0.106" in text
    library.write_bytes(b"built again")
    with pytest.raises(LoadError, match="must be the one the engine was built with"):
        layout._copy_plugin([served(plugin=record)], tmp_path / "other")


def test_engines_that_need_no_plugin_get_none(tmp_path: Path) -> None:
    assert layout._copy_plugin([served()], tmp_path / "bundle") is None
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize("plugin", [None, "plugin/lib.so"])
def test_the_script_serves_the_bundle_from_any_folder(tmp_path: Path, plugin: str | None) -> None:
    bundle, programs = tmp_path / "a bundle", tmp_path / "bin"
    bundle.mkdir()
    programs.mkdir()
    server = programs / "tritonserver"
    server.write_text('#!/bin/sh\nfor x in "$@"; do echo "$x"; done\n')
    server.chmod(0o755)
    (bundle / "serve.sh").write_text(serve_script(plugin))
    done = subprocess.run(
        ["sh", str(bundle / "serve.sh"), "--http-port=9000"],
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
        env={"PATH": f"{programs}:{os.environ['PATH']}"},
    )
    expected = [f"--model-repository={bundle}/triton"]
    if plugin:
        expected.append(f"--backend-config=tensorrt,plugins={bundle}/{plugin}")
    assert done.stdout.splitlines() == [*expected, "--http-port=9000"]


@needs_rtx
def test_the_command_bundles_what_it_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save_fused(tmp_path / "m.onnx")
    command = ["build", "m.onnx", "--target", "sm_89,sm_120"]
    assert run([*command, "-o", "m.engine", "--bundle", "one"]) == 0
    assert "BUNDLED m in one" in capsys.readouterr().out
    assert verify_files(Path("one/engines/m.engine")).targets == ("sm_89", "sm_120")
    assert run([*command, "-o", "engines", "--bundle", "two", "--json", "--jobs", "2"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["bundle"]["models"] == ["m"]
    assert len(list(Path("two/engines").glob("*.engine"))) == 2


@needs_rtx
def test_a_failed_matrix_makes_no_bundle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    assert run(["build", "bad.onnx", "-o", "out", "--target", "sm_89", "--bundle", "b"]) == 1
    assert not Path("b").exists()
    assert "must be an ONNX file" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["..", ".hidden", "a b", 'a"b', "$(x)"])
def test_a_model_whose_name_is_no_word_is_refused(name: str) -> None:
    manifest = dataclasses.replace(MANIFEST, onnx=FileRecord(f"{name}.onnx", "1" * 64))
    with pytest.raises(UsageError, match="must have a name that can be a folder and a word"):
        layout._served_models({Path("m.engine"): manifest})
