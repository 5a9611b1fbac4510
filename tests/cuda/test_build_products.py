"""What nvcc makes of the kernels: registers, spills and instructions, without a GPU."""

from __future__ import annotations

import functools
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from cuda_builds import BUILD, ROOT, nvcc, run_command
from main_loops import count_main_loop, instructions, main_loop

__all__ = ["nvcc"]  # a fixture

CUDA = ROOT / "plugins" / "cuda"
CUDART_VARIABLE = "QKEXPORT_CUDART_DIR"
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


@functools.cache
def compile_kernel(nvcc: str, name: str) -> tuple[Path, str]:
    """The object file of an instantiation for sm_80 and what ptxas says about it."""
    folder = BUILD / "cuda_checks"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}.o"
    includes = (f"-I{CUDA}", f"-I{ROOT / 'plugins' / 'include'}")
    code = ("-gencode", "arch=compute_80,code=sm_80")
    source = CUDA / "instantiations" / f"{name}.cu"
    flags = ("-std=c++17", "-O3", "-Xptxas", "-v", "-Xcompiler", "-Wall,-Wextra")
    return target, run_command(nvcc, *flags, *code, *includes, "-c", source, "-o", target)


@pytest.fixture(scope="session")
def cuobjdump() -> Path:
    """NVIDIA's disassembler: the toolkit's, or the one on the package index."""
    found = shutil.which("cuobjdump")
    if found is not None:
        return Path(found)
    folder = BUILD / "cuobjdump"
    if not folder.is_dir():
        packages = ("nvidia-cuda-cuobjdump==13.5.37", "nvidia-cuda-nvdisasm==13.5.37")
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target")
        run_command(*pip, folder, *packages)
    return folder / "nvidia" / "cu13" / "bin" / "cuobjdump"


@pytest.mark.parametrize("name", TENSOR_CORE_KERNELS)
def test_tensor_core_kernels_spill_no_register(nvcc: str, name: str) -> None:
    _, report = compile_kernel(nvcc, name)
    assert "warning" not in report
    assert re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", report) == [("0", "0")]
    registers = int(re.findall(r"Used (\d+) registers", report)[0])
    # Two blocks of four warps on a multiprocessor of 65536 registers.
    assert 2 * 4 * 32 * registers <= 65536


@pytest.mark.parametrize("name", TENSOR_CORE_KERNELS)
def test_machine_code_uses_tensor_cores_and_asynchronous_copies(
    nvcc: str, cuobjdump: Path, name: str
) -> None:
    target, _ = compile_kernel(nvcc, name)
    path = f"{cuobjdump.parent}{os.pathsep}{os.environ['PATH']}"
    code = run_command(cuobjdump, "-sass", target, PATH=path)
    head_dim = int(name.split("_")[-1])
    assert count_main_loop(code) == MAIN_LOOP[head_dim]
    first, last = main_loop(code)
    length = sum(first <= at <= last for at, _ in instructions(code))
    assert length == pytest.approx(MAIN_LOOP_LENGTH[head_dim], rel=0.25)
    assert not re.findall(r"\b(LDL|STL)\b", code)


ALL_ARCHITECTURES = (75, 80, 86, 87, 89, 90, 100, 120)


@pytest.mark.nightly
def test_library_for_all_architectures_stays_small(nvcc: str) -> None:
    build = BUILD / "cuda_all_architectures"
    targets = ";".join(map(str, ALL_ARCHITECTURES))
    options = ("-DQKEXPORT_BUILD_CUDA=ON", f"-DQKEXPORT_CUDA_ARCHITECTURES={targets}")
    run_command("cmake", "-S", ROOT / "plugins", "-B", build, "-DQKEXPORT_BUILD_ORT=OFF", *options)
    run_command("cmake", "--build", build, "-j", "2", "--target", "qkexport_cuda")
    assert (build / "lib" / "libqkexport_cuda.so").stat().st_size < 60e6


@pytest.mark.nightly
def test_library_for_two_architectures_compiles_in_ten_minutes_of_two_cores(nvcc: str) -> None:
    build = BUILD / "cuda_two_architectures"
    options = ("-DQKEXPORT_BUILD_CUDA=ON", "-DQKEXPORT_CUDA_ARCHITECTURES=80;90")
    run_command("cmake", "-S", ROOT / "plugins", "-B", build, "-DQKEXPORT_BUILD_ORT=OFF", *options)
    before = os.times()
    run_command(
        *("cmake", "--build", build, "-j", "2", "--target", "qkexport_cuda", "--clean-first")
    )
    after = os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    assert used < 2 * 600


VARIANTS = {
    "plain": {},
    "races": {"PTXEMU_RACECHECK": "1", "PTXEMU_SEED": "3"},
    "independent lanes": {"PTXEMU_ITS": "1", "PTXEMU_SEED": "4"},
    "truncating tensor cores": {"PTXEMU_MMA": "tc", "PTXEMU_SEED": "5"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_real_binary_matches_the_oracle_under_another_cuda_runtime(nvcc: str, variant: str) -> None:
    """With a CUDA runtime that interprets PTX the binary itself runs on a CPU."""
    folder = os.environ.get(CUDART_VARIABLE)
    if folder is None:
        pytest.skip(f"{CUDART_VARIABLE} names no folder with a libcudart")
    build = BUILD / "cuda_shared_runtime"
    options = ("-DQKEXPORT_CUDART_SHARED=ON", "-DQKEXPORT_BUILD_GPU_TESTS=ON")
    run_command("cmake", "-S", ROOT / "plugins", "-B", build, "-DQKEXPORT_BUILD_ORT=OFF", *options)
    run_command("cmake", "--build", build, "-j", "2", "--target", "run_cuda_cases_gpu")
    program = build / "gpu" / "run_cuda_cases_gpu"
    output = run_command(program, "2", "0", "257", LD_LIBRARY_PATH=folder, **VARIANTS[variant])
    assert " 0 failed" in output
    assert "RACE" not in output
