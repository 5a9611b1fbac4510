"""The benchmark's calls compute the same attention; its timings need a GPU."""

from __future__ import annotations

import ctypes
from types import ModuleType

import pytest
import torch
from benchmark_script import load_benchmark
from cuda_builds import emulated_library
from torch.nn.attention import SDPBackend

__all__ = ["emulated_library"]  # a fixture


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    return load_benchmark("bench_attention_cuda")


@pytest.mark.parametrize(
    ("sizes", "causal"), [((1, 33, 33, 4, 2, 64), True), ((1, 1, 65, 4, 2, 64), False)]
)
def test_both_sides_of_the_benchmark_compute_the_same(
    bench: ModuleType, emulated_library: ctypes.CDLL, sizes: tuple[int, ...], causal: bool
) -> None:
    problem = bench.Problem("small", *sizes, causal=causal)
    inputs = bench.make_inputs(problem, "cpu")
    ours, theirs = torch.empty_like(inputs["query"]), torch.empty_like(inputs["query"])
    bench.kernel_call(emulated_library, problem, inputs, ours)()
    bench.torch_call(problem, inputs, theirs, SDPBackend.MATH)()
    largest = float(theirs.float().abs().max())
    torch.testing.assert_close(ours, theirs, rtol=0, atol=bench.AGREEMENT * largest)


def test_without_a_gpu_the_benchmark_says_that_it_timed_nothing(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert bench.main([]) == 0
    assert "SKIPPED" in capsys.readouterr().out
