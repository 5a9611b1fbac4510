"""The C++ runner of a bundle compiles against NVIDIA's headers, and says what goes wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tensorrt_stubs import REPOSITORY, compile_stand_ins, unpack_wheel

SOURCES = REPOSITORY / "qkexport" / "bundle" / "files" / "cpp"
HEADERS = ("kernel-lens==2.0.1", "nvidia-cuda-runtime==13.5.37", "nvidia-cuda-crt==13.5.37")

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders with the headers of TensorRT and CUDA, laid out as an installation."""
    folder = tmp_path_factory.mktemp("headers")
    for requirement in HEADERS:
        unpack_wheel(requirement, folder)
    tensorrt = folder / "tensorrt"
    tensorrt.mkdir()
    (tensorrt / "include").symlink_to(next(folder.rglob("NvInferRuntime.h")).parent)
    cuda = next(folder.rglob("cuda_runtime_api.h")).parents[1]
    library = next(cuda.rglob("libcudart.so*"))
    (cuda / "lib" / "libcudart.so").symlink_to(library)
    return {"TENSORRT_ROOT": str(tensorrt), "CUDA_ROOT": str(cuda)}


def _build(folder: Path, roots: dict[str, str]) -> str:
    configure = ["cmake", "-S", str(SOURCES), "-B", str(folder)]
    configure += [f"-D{name}={path}" for name, path in roots.items()]
    configure.append("-DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF")
    configure.append("-DCMAKE_CXX_FLAGS=-Werror")
    text = ""
    for command in (configure, ["cmake", "--build", str(folder)]):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        text += done.stdout
    return text


def test_with_headers_alone_it_compiles_without_a_warning(
    tmp_path: Path, roots: dict[str, str]
) -> None:
    text = _build(tmp_path / "build", roots)
    assert "run_engine is compiled but not linked" in text
    assert not (tmp_path / "build" / "run_engine").exists()


@pytest.fixture(scope="module")
def program(
    tmp_path_factory: pytest.TempPathFactory, roots: dict[str, str]
) -> tuple[Path, dict[str, str]]:
    """The runner linked to a TensorRT that has no GPU, and what it needs to start."""
    folder = tmp_path_factory.mktemp("linked")
    libraries = compile_stand_ins(folder / "lib", "10")
    (libraries / "libnvinfer.so").symlink_to(libraries / "libnvinfer.so.10")
    (folder / "include").symlink_to(Path(roots["TENSORRT_ROOT"]) / "include")
    _build(folder / "build", {**roots, "TENSORRT_ROOT": str(folder)})
    path = f"{libraries}:{roots['CUDA_ROOT']}/lib"
    return folder / "build" / "run_engine", {**os.environ, "LD_LIBRARY_PATH": path}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the path of an engine was expected"),
        (["m.engine", "--faster"], "a value was expected after --faster"),
        (["m.engine", "--faster", "1"], "option is not known: --faster"),
        (["m.engine", "--shape", "x"], "NAME=VALUE was expected, got x"),
        (["none.engine"], "cannot read none.engine"),
        ([__file__], "TensorRT has no runtime here: is there a GPU with its driver?"),
    ],
)
def test_what_goes_wrong_is_said_in_a_sentence(
    program: tuple[Path, dict[str, str]], arguments: list[str], said: str
) -> None:
    path, environment = program
    done = subprocess.run(
        [str(path), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == f"Error: {said}\n"
