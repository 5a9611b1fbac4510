"""The cost model of the CUDA kernels keeps the promises of the design."""

from __future__ import annotations

from types import ModuleType

import pytest
from benchmark_script import load_benchmark


@pytest.fixture(scope="module")
def model() -> ModuleType:
    return load_benchmark("cuda_cost_model")


def test_a_prefill_is_two_launches_and_moves_hardly_more_than_it_must(model: ModuleType) -> None:
    for problem in model.PROBLEMS:
        launches = model.fused_launches(problem)
        assert len(launches) == (2 if problem.seqlen_past == 0 else 3)
        moved = sum(launch.memory_bytes for launch in launches)
        assert moved <= 1.1 * model.least_bytes(problem)


def test_bytes_agree_with_those_counted_in_an_execution(model: ModuleType) -> None:
    """12 060 672 bytes of distinct sectors were read and written by the interpreted PTX."""
    launches = model.fused_launches(model.PROBLEMS[0])
    assert sum(launch.memory_bytes for launch in launches) == pytest.approx(12_060_672, rel=0.01)


def test_operations_of_a_small_attention(model: ModuleType) -> None:
    problem = model.Problem("", 2, 3, 4, 4, 5)
    assert model.attention_flops(problem) == 2 * 2 * (2 * 4 * 3 * 3 * 5)
