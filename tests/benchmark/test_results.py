"""Statistics of measured runs, and how a benchmark's numbers stand beside each other."""

from __future__ import annotations

import numpy as np
import pytest

from qkexport.benchmark.results import BenchResult, ContenderResult, Latency, Measurement


def _measured(seconds: float) -> Measurement:
    return Measurement(1.0, 2.0, Latency.of([seconds]), 3, 5)


def _result(*contenders: ContenderResult, absent: tuple[str, ...] = ()) -> BenchResult:
    return BenchResult(contenders, {"x": (1, 2)}, absent, 1, {})


FAST = ContenderResult("fast.onnx", "ort", _measured(0.5))
SLOW = ContenderResult("slow.onnx", "ort-stock", _measured(2.0))
FAILED = ContenderResult("bad.onnx", "ort", reason="no kernel")
SKIPPED = ContenderResult("m.engine", "tensorrt", reason="no GPU", skipped=True)


@pytest.mark.parametrize("count", [1, 2, 59, 97, 100])
def test_percentiles_are_those_of_numpy_by_nearest_rank(count: int) -> None:
    seconds = np.random.default_rng(count).random(count)
    latency = Latency.of(list(seconds))
    for percent in (50, 90, 99):
        expected = np.percentile(seconds, percent, method="inverted_cdf")
        assert latency.percentiles[percent] == expected
    assert latency.minimum == seconds.min()
    assert latency.mean == pytest.approx(seconds.mean())
    assert latency.runs == count


def test_speed_is_relative_to_the_first_that_ran() -> None:
    result = _result(FAILED, SLOW, FAST)
    assert result.baseline is SLOW
    assert result.speedup(FAST) == 4.0
    assert result.speedup(SLOW) == 1.0
    assert result.speedup(FAILED) is None


@pytest.mark.parametrize(
    ("result", "passed"),
    [
        (_result(FAST, SLOW), True),
        (_result(FAST, SKIPPED), True),
        (_result(FAST, FAILED), False),
        (_result(SKIPPED), False),
        (_result(), False),
        (_result(FAST, SKIPPED, absent=("tensorrt",)), False),
    ],
)
def test_a_benchmark_is_good_when_all_that_is_here_ran(result: BenchResult, passed: bool) -> None:
    assert bool(result) is passed
    assert result.to_dict()["passed"] is passed


def test_a_measurement_survives_its_document() -> None:
    measurement = Measurement(1.0, 2.0, Latency.of([0.5, 0.25]), 3, 5, 4, ("bf16 emulated",))
    assert Measurement.from_dict(measurement.to_dict()) == measurement


def test_the_document_has_a_verdict_for_each() -> None:
    contenders = _result(FAST, FAILED, SKIPPED).to_dict()["contenders"]
    assert [each["verdict"] for each in contenders] == ["RAN", "FAILED", "SKIPPED"]
    assert contenders[0]["latency"]["p99"] == 0.5
    assert "latency" not in contenders[1]
