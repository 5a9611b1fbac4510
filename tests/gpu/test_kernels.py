"""The CUDA kernels on a real GPU; `tests/gpu/run_all.sh` runs the same without pytest."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from qkexport.engine.device import find_gpu

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_gpu() is None, reason="there is no NVIDIA GPU"),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc"),
]
ROOT = Path(__file__).parents[2]


def run(*command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    build = tmp_path_factory.mktemp("gpu")
    gpu = find_gpu()
    assert gpu is not None
    architecture = gpu.target.removeprefix("sm_")
    options = ("-DQKEXPORT_BUILD_CUDA=ON", "-DQKEXPORT_BUILD_GPU_TESTS=ON")
    target = f"-DQKEXPORT_CUDA_ARCHITECTURES={architecture}"
    run("cmake", "-S", ROOT / "plugins", "-B", build, "-DQKEXPORT_BUILD_ORT=OFF", *options, target)
    names = ("run_cuda_cases_gpu", "run_far_cuda_cases_gpu", "test_cuda_device")
    run("cmake", "--build", build, "-j", "4", "--target", *names)
    return build / "gpu"


@pytest.mark.parametrize("seed", [1, 2])
def test_kernels_match_float64_on_all_pairs_of_choices(programs: Path, seed: int) -> None:
    assert " 0 failed" in run(programs / "run_cuda_cases_gpu", str(seed), "0", "257")


def test_tensors_beyond_32_bits_are_reached(programs: Path) -> None:
    assert " 0 failed" in run(programs / "run_far_cuda_cases_gpu")


def test_runs_are_deterministic_and_can_be_captured(programs: Path) -> None:
    output = run(programs / "test_cuda_device")
    assert "0 failed" in output
    assert "SKIPPED" not in output


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_sanitizers_find_nothing(programs: Path, tool: str) -> None:
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        pytest.skip("there is no compute-sanitizer")
    flags = ("--tool", tool, "--error-exitcode", "1")
    assert " 0 failed" in run(sanitizer, *flags, programs / "run_cuda_cases_gpu", "1", "12", "129")
