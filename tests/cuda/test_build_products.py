"""What nvcc made of the kernels: registers, spills and instructions, without a GPU."""

from __future__ import annotations

import os
import re
import shutil
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from cuda_runtime_build import build_on_shared_runtime, cudart_path
from main_loops import count_main_loop, instructions, main_loop
from nvcc_build import nvcc_build, nvcc_library
from run_command import run_command

PLUGINS = Path(__file__).parents[2] / "plugins"
LIBRARIES = ("libqkexport_cuda.so", "libqkexport_ort.so", "libqkexport_trt.so")
TENSOR_CORE_KERNELS = [f"attention_{t}_{d}" for t in ("fp16", "bf16") for d in (64, 128, 256)]

# One step of the main loop in sm_80 code, by head_dim. HMMA: 2 products of (rows / 16) x (keys / 8)
# x (head_dim / 16). LDSM: fragments of queries, keys and values. LDGSTS: 16-byte copies of a
# thread. BAR: one a step, two in the branch that guards against NaN values.
MAIN_LOOP = {
    64: {"HMMA": 2 * 2 * 8 * 4, "LDSM": 8 + 16 + 16, "LDGSTS": 2 * 4, "BAR": 3},
    128: {"HMMA": 2 * 2 * 4 * 8, "LDSM": 16 + 16 + 16, "LDGSTS": 2 * 4, "BAR": 3},
    256: {"HMMA": 2 * 1 * 4 * 16, "LDSM": 16 + 32 + 32, "LDGSTS": 2 * 8, "BAR": 3},
}
# All instructions of the loop with its rare branches, as nvcc 13.0 makes them; other releases may
# differ by a quarter.
MAIN_LOOP_LENGTH = {64: 7400, 128: 5400, 256: 4200}


@pytest.fixture(scope="session")
def cuobjdump() -> Path:
    """NVIDIA's disassembler: the toolkit's, or that of the package index."""
    nvcc_build()  # without a build there is nothing to look at
    found = shutil.which("cuobjdump")
    if found is not None:
        return Path(found)
    try:
        files = distribution("nvidia-cuda-cuobjdump").files or []
    except PackageNotFoundError:
        pytest.skip("needs cuobjdump (make test-cuda)")
    return next(Path(str(file.locate())) for file in files if file.name == "cuobjdump")


def inspect(cuobjdump: Path, *arguments: str | Path) -> str:
    """What cuobjdump says; it calls the nvdisasm beside it."""
    path = f"{cuobjdump.parent}{os.pathsep}{os.environ['PATH']}"
    return run_command(cuobjdump, *arguments, PATH=path)


def object_of(kernel: str) -> Path:
    """The object file of an instantiation."""
    folder = nvcc_build() / "cuda" / "CMakeFiles" / "qkexport_cuda_kernels.dir" / "instantiations"
    return folder / f"{kernel}.cu.o"


def wanted_architectures() -> list[str]:
    """The architectures that the build was configured for."""
    cache = (nvcc_build() / "CMakeCache.txt").read_text()
    (names,) = re.findall(r"^QKEXPORT_CUDA_ARCHITECTURES:\w+=(.*)$", cache, re.MULTILINE)
    return [f"sm_{name}" for name in names.split(";")]


@pytest.mark.parametrize("name", TENSOR_CORE_KERNELS)
def test_tensor_core_kernels_spill_no_register(cuobjdump: Path, name: str) -> None:
    for architecture in wanted_architectures():
        usage = inspect(cuobjdump, "-arch", architecture, "-res-usage", object_of(name))
        # Spilled registers live on the stack.
        ((registers, stack, local),) = re.findall(
            r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", usage
        )
        assert int(stack) == 0, architecture
        assert local == "0"
        # Two blocks of four warps on a multiprocessor of 65536 registers.
        assert 2 * 4 * 32 * int(registers) <= 65536


@pytest.mark.parametrize("name", TENSOR_CORE_KERNELS)
def test_machine_code_uses_tensor_cores_and_asynchronous_copies(cuobjdump: Path, name: str) -> None:
    code = inspect(cuobjdump, "-arch", "sm_80", "-sass", object_of(name))
    head_dim = int(name.split("_")[-1])
    assert count_main_loop(code) == MAIN_LOOP[head_dim]
    first, last = main_loop(code)
    length = sum(first <= at <= last for at, _ in instructions(code))
    assert length == pytest.approx(MAIN_LOOP_LENGTH[head_dim], rel=0.25)
    assert not re.findall(r"\b(LDL|STL)\b", code)


@pytest.mark.parametrize("name", LIBRARIES)
def test_libraries_carry_every_architecture_and_ptx_and_stay_small(
    cuobjdump: Path, name: str
) -> None:
    wanted = set(wanted_architectures())
    library = nvcc_library(name)
    machine_code = re.findall(r"\.(sm_\d+)\.cubin", inspect(cuobjdump, "-lelf", library))
    assert set(machine_code) == wanted
    ptx = re.findall(r"\.(sm_\d+)\.ptx", inspect(cuobjdump, "-lptx", library))
    assert set(ptx) == {"sm_80"}
    assert len(machine_code) == len(wanted) * len(ptx)
    assert library.stat().st_size < 60e6


@pytest.mark.parametrize(("architectures", "ptx"), [("75;90", 80), ("90", 90)])
def test_ptx_of_no_build_is_older_than_the_kernels_that_later_devices_get(
    tmp_path: Path, architectures: str, ptx: int
) -> None:
    """PTX of 75 would run on every later device, without its bf16 tensor-core kernels."""
    if shutil.which("nvcc") is None:
        pytest.skip("needs nvcc")
    options = ("-DQKEXPORT_BUILD_ORT=OFF", f"-DQKEXPORT_CUDA_ARCHITECTURES={architectures}")
    command = ("cmake", "-S", PLUGINS, "-B", tmp_path, "-DQKEXPORT_BUILD_CUDA=ON", *options)
    output = run_command(*command, PIP_NO_INDEX="1")  # no headers are needed
    assert f"PTX for compute_{ptx}" in output


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("run_cuda_cases_gpu", ("2", "0", "257")), ("run_far_cuda_cases_gpu", ())],
)
def test_real_binary_matches_the_oracle_under_another_cuda_runtime(
    name: str, arguments: tuple[str, ...]
) -> None:
    """With a CUDA runtime that interprets PTX the binary itself runs on a CPU.

    Checks that such a runtime has to offer are turned on from outside, by its own variables.
    """
    folder = str(cudart_path().parent)
    program = build_on_shared_runtime(name) / "gpu" / name
    output = run_command(program, *arguments, LD_LIBRARY_PATH=folder)
    assert " 0 failed" in output
    assert "RACE" not in output
