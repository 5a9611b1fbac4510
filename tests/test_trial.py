"""Probes side by side: one that dies takes nothing with it, and says how it died."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

import pytest

from qkexport.diagnosis.capability import Capability, State
from qkexport.diagnosis.trial import Answer, find_answer, try_probes
from qkexport.errors import BackendUnavailableError


def _capability(name: str, timeout: float = 60.0) -> Capability:
    return Capability(name, "p", (), (), "do this", timeout)


def _answers(*capabilities: Capability, jobs: int | None = None) -> dict[str, Answer]:
    return {answer.name: answer for answer in try_probes(capabilities, jobs=jobs)}


def _crash() -> str:
    os.kill(os.getpid(), 9)
    return "never"


def _exit() -> str:
    sys.exit("library does not fit")


def _hang() -> str:
    time.sleep(60)
    return "never"


def _lacking() -> str:
    raise BackendUnavailableError("It must be built, got none.", hint="build it")


def _wrong() -> str:
    sys.stdout.write("noise of a library")
    raise ArithmeticError("a known attention came out as [0]")


@pytest.mark.parametrize(
    ("probe", "timeout", "answer"),
    [
        (lambda: "right", 60.0, Answer("x", State.AVAILABLE, "right")),
        (_lacking, 60.0, Answer("x", State.MISSING, "It must be built, got none.", "build it")),
        (
            _wrong,
            60.0,
            Answer("x", State.BROKEN, "ArithmeticError: a known attention came out as [0]"),
        ),
        (
            _crash,
            60.0,
            Answer("x", State.BROKEN, "the process was killed by signal 9: it said nothing"),
        ),
        (_exit, 60.0, Answer("x", State.BROKEN, "the process failed: library does not fit")),
        (_hang, 0.2, Answer("x", State.BROKEN, "no answer within 0 s")),
    ],
    ids=["right", "lacking", "wrong", "crash", "exit", "hang"],
)
def test_every_end_of_a_probe_is_an_answer_and_its_neighbour_is_not_touched(
    monkeypatch: pytest.MonkeyPatch, probe: Callable[[], str], timeout: float, answer: Answer
) -> None:
    both = {"x": probe, "y": lambda: "fine"}
    monkeypatch.setattr("qkexport.diagnosis.trial.PROBES", both)
    found = _answers(_capability("x", timeout), _capability("y"), jobs=2)
    assert found == {"x": answer, "y": Answer("y", State.AVAILABLE, "fine")}


def test_probes_run_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    def meet() -> str:
        time.sleep(0.5)
        return "met"

    monkeypatch.setattr("qkexport.diagnosis.trial.PROBES", dict.fromkeys("abcd", meet))
    start = time.monotonic()
    assert len(_answers(*map(_capability, "abcd"), jobs=4)) == 4
    assert time.monotonic() - start < 4 * 0.5


def test_a_long_error_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise ValueError("x" * 1_000_000)

    monkeypatch.setattr("qkexport.diagnosis.trial.PROBES", {"a": fail})
    assert len(find_answer("a").detail) < 2000
    assert len(_answers(_capability("a"))["a"].detail) < 2000
