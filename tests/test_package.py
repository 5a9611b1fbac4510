"""The installed package: what is in it, what its libraries ask of a machine, that it runs alone."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import qkexport

ROOT = Path(__file__).resolve().parents[1]
_LIBRARIES = ("libqkexport_cpu.so", "libqkexport_ort.so", "libqkexport_host.so")
_FILES = (
    "py.typed",
    "drawing/templates/attention.svg.j2",
    "report/templates/parity.html.j2",
    "report/parity.schema.json",
    "bundle/files/cpp/run_engine.cc",
)
# What every Linux has, as the manylinux policies list it; anything else must not be asked for.
_SYSTEM = {
    "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "libc.so.6", "libdl.so.2", "libgcc_s.so.1",
    "libm.so.6", "libpthread.so.0", "librt.so.1", "libstdc++.so.6",
}  # fmt: skip


def _distribution() -> importlib.metadata.Distribution:
    try:
        found = importlib.metadata.distribution("qkexport")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("qkexport is not installed, only on the path")
    if not (Path(str(found.locate_file("qkexport"))) / "lib").is_dir():
        pytest.skip("the installed qkexport has no native libraries")
    return found


@pytest.fixture(scope="module")
def folder() -> Path:
    """Where the package is installed."""
    return Path(str(_distribution().locate_file("qkexport")))


def test_the_version_is_that_of_the_package() -> None:
    assert _distribution().version == qkexport.__version__


def test_the_wheel_is_for_any_python_on_this_kind_of_linux() -> None:
    wheel = _distribution().read_text("WHEEL") or ""
    tags = re.findall(r"^Tag: (.+)$", wheel, re.M)
    assert tags
    for tag in tags:
        assert re.fullmatch(rf"py3-none-(many)?linux\w*_{platform.machine()}", tag)
    assert "Root-Is-Purelib: false" in wheel


@pytest.mark.parametrize("name", _FILES)
def test_data_files_are_installed(folder: Path, name: str) -> None:
    assert (folder / name).is_file()


@pytest.mark.parametrize("name", _LIBRARIES)
def test_a_library_asks_for_nothing_that_a_linux_lacks(folder: Path, name: str) -> None:
    dynamic = _readelf("-d", folder / "lib" / name)
    needed = set(re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic))
    siblings = {path.name for path in (folder / "lib").iterdir()}
    assert needed <= _SYSTEM | siblings
    paths = re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic)
    assert all(part.startswith("$ORIGIN") for path in paths for part in path.split(":"))
    assert "TEXTREL" not in dynamic


def _readelf(option: str, path: Path) -> str:
    try:
        return subprocess.run(
            ["readelf", "--wide", option, path], check=True, capture_output=True, text=True
        ).stdout
    except FileNotFoundError:
        pytest.skip("readelf is not installed")


def test_it_runs_outside_the_checkout(folder: Path, tmp_path: Path) -> None:
    names = ("PYTHONPATH", "QKEXPORT_LIBRARY_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    code = "import qkexport; print(qkexport.__file__); print(qkexport.ort_library_path())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    package, library = done.stdout.splitlines()
    assert Path(package).parent == folder
    assert Path(library).parent == folder / "lib"
    command = [sys.executable, "-m", "qkexport", "doctor", "convert", "ort"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)


@pytest.mark.nightly
def test_source_and_wheel_build_in_a_clean_environment(tmp_path: Path) -> None:
    pytest.importorskip("scikit_build_core")
    if not (ROOT / "pyproject.toml").is_file():
        pytest.skip("the sources are not beside the tests")
    code = f"from scikit_build_core.build import build_sdist; print(build_sdist({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("qkexport-*.tar.gz")
    with tarfile.open(archive) as files:
        inside = {name.partition("/")[2] for name in files.getnames()}
    assert {"pyproject.toml", "README.md", "plugins/CMakeLists.txt", "tests/test_spec.py"} <= inside
    subprocess.run(
        [
            sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", tmp_path,
            "--config-settings=cmake.define.QKEXPORT_BUILD_CUDA=OFF", archive,
        ],
        cwd=tmp_path, check=True,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("qkexport-*.whl")
    clean = tmp_path / "clean"
    subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", clean], check=True)
    python = clean / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--no-deps", "-I", wheel], check=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", "import qkexport; print(qkexport.ort_library_path())"],
        cwd=tmp_path, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert str(clean) in done.stdout
