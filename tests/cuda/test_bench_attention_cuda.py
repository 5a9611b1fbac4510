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
    ours = torch.empty_like(inputs["query"])
    bench.kernel_call(emulated_library, problem, inputs, ours)()
    theirs = bench.torch_call(problem, inputs, SDPBackend.MATH)()
    largest = float(theirs.float().abs().max())
    torch.testing.assert_close(ours, theirs, rtol=0, atol=bench.AGREEMENT * largest)


def test_rows_of_the_table_are_printed_with_what_has_no_kernel(
    bench: ModuleType,
    emulated_library: ctypes.CDLL,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    make_inputs = bench.make_inputs
    backends = {"math": SDPBackend.MATH, "flash": SDPBackend.CUDNN_ATTENTION}
    problems = (bench.Problem("small", 1, 5, 5, 2, 1, 64), bench.Problem("one", 1, 1, 9, 2, 2, 64))
    monkeypatch.setattr(bench, "make_inputs", lambda problem, _: make_inputs(problem, "cpu"))
    monkeypatch.setattr(bench, "load_library", lambda _: emulated_library)
    monkeypatch.setattr(bench, "median_microseconds", lambda _: 12.34)
    monkeypatch.setattr(bench, "PROBLEMS", problems)
    monkeypatch.setattr(bench, "BACKENDS", backends)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    assert bench.main(["libqkexport_cuda.so"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [row.split(" | ")[:3] for row in rows[2:]] == [
        ["| small", "12.3", "12.3"],
        ["| one", "12.3", "12.3"],
    ]
    assert all("SKIPPED" in row for row in rows[2:])


def test_without_a_gpu_the_benchmark_says_that_it_timed_nothing(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert bench.main([]) == 0
    assert "SKIPPED" in capsys.readouterr().out
