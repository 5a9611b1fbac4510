"""Our TensorRT code uses only what NVIDIA's bindings have, on every flavour and version."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest
from tensorrt_stubs import (
    REPOSITORY,
    stubs_of_rtx,
    stubs_of_wheel,
    unpack_wheel,
    without_syntax_errors,
)

pytest.importorskip("tensorrt_rtx", reason="pip install 'qkexport[rtx]'")

PACKAGE: Final = REPOSITORY / "qkexport"
SOURCES: Final = [*sorted((PACKAGE / "engine").glob("*.py")), PACKAGE / "run" / "tensorrt.py"]
# Tests that only a machine with TensorRT and a GPU can run: here they are at least well typed.
UNRUN: Final = [
    REPOSITORY / "tests" / "plugin" / name for name in ("tensorrt_engine.py", "test_in_tensorrt.py")
]
FULL_VERSIONS: Final = ("10.16.1.11", "11.4.0.106")

Stubs = Callable[[str], Path]


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Stubs:
    """A folder with tensorrt.pyi of a version, or of RTX under the same name."""
    known: dict[str, Path] = {}
    rtx = stubs_of_rtx(tmp_path_factory.mktemp("rtx"))

    def make(version: str) -> Path:
        if version not in known:
            folder = tmp_path_factory.mktemp("stubs")
            requirement = f"tensorrt-cu13-bindings=={version}"
            unpacked = tmp_path_factory.mktemp("wheel")
            text = rtx if version == "rtx" else stubs_of_wheel(requirement, unpacked)
            (folder / "tensorrt.pyi").write_text(text)
            (folder / "tensorrt_rtx.pyi").write_text(rtx)
            known[version] = folder
        return known[version]

    return make


def _mypy(folder: Path, *sources: Path) -> list[str]:
    """Complaints about `sources`; imports outside of them are not followed."""
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=skip"]
    command += [f"--cache-dir={folder / 'cache'}", "--no-warn-unused-ignores"]
    # What is not followed is Any, and so is what is derived from it or returned by it.
    derived = ("misc", "no-any-return", "untyped-decorator")
    command += [f"--disable-error-code={code}" for code in derived]
    command += [str(path) for path in (*sorted(folder.rglob("*.pyi")), *sources)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, "MYPYPATH": "tests"},
    )
    names = {path.name for path in sources}
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert "checked" in done.stdout, done.stdout[-2000:] + done.stderr
    return [line for line in lines if Path(line.partition(":")[0]).name in names]


@pytest.mark.parametrize("version", [*FULL_VERSIONS, "rtx"])
def test_every_class_method_enum_and_argument_we_use_exists(stubs: Stubs, version: str) -> None:
    folder = stubs(version)
    probe = folder / "probe.py"
    probe.write_text(
        "import tensorrt\n"
        "from qkexport.engine.bindings import Bindings\n"
        "bindings: Bindings = tensorrt\n"
    )
    unrun = [] if version == "rtx" else UNRUN  # TensorRT-RTX takes no plugins
    assert _mypy(folder, probe, *SOURCES, *unrun) == []


WRONG_USES: Final = (
    "builder.build_cuda_engine(network)",
    "builder.build_serialized_network(network)",
    "builder.create_network(flag=1)",
    "config.set_flag(trt.BuilderFlag.MISSPELT)",
    "trt.Bilder(logger)",
)


def test_names_and_arguments_that_do_not_exist_are_found(stubs: Stubs) -> None:
    folder = stubs("11.4.0.106")
    probe = folder / "wrong.py"
    head = (
        "import tensorrt as trt\n"
        "def use(builder: trt.Builder, network: trt.INetworkDefinition,"
        " config: trt.IBuilderConfig, logger: trt.ILogger) -> None:\n"
    )
    probe.write_text(head + "".join(f"    {use}\n" for use in WRONG_USES))
    found = {int(line.split(":")[1]) for line in _mypy(folder, probe)}
    assert found == set(range(3, 3 + len(WRONG_USES)))


def test_community_stubs_of_10_13_agree_but_for_attention_which_came_later(
    stubs: Stubs, tmp_path: Path
) -> None:
    package = unpack_wheel("tensorrt-stubs==10.13.0.35.1", tmp_path)
    bindings = package / "tensorrt_bindings" / "tensorrt.pyi"
    bindings.write_text(without_syntax_errors(bindings.read_text()))
    rtx = stubs("rtx") / "tensorrt_rtx.pyi"
    (tmp_path / "tensorrt_rtx.pyi").write_text(rtx.read_text())
    complaints = _mypy(tmp_path, *SOURCES)
    assert len(complaints) == 3
    assert all("attention" in line.lower() for line in complaints)
