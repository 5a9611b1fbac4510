"""Shares of the work out of nested phases, and the flag that stops it."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest
from engine_models import needs_rtx

from qkexport.engine.bindings import Bindings, Flavour, load_bindings
from qkexport.engine.logger import _LEVELS, Messages, _record, listening
from qkexport.engine.progress import Cancellation, make_monitor

FAKE = cast(Bindings, SimpleNamespace(IProgressMonitor=object))


def _monitor(seen: list[tuple[float, str]], cancellation: Cancellation | None = None) -> Any:
    return make_monitor(
        FAKE, lambda share, phase: seen.append((share, phase)), cancellation or Cancellation()
    )


def test_an_inner_phase_is_one_step_of_the_phase_around_it() -> None:
    seen: list[tuple[float, str]] = []
    monitor = _monitor(seen)
    monitor.phase_start("outer", None, 2)
    monitor.phase_start("inner", "outer", 4)
    monitor.step_complete("inner", 0)
    monitor.step_complete("inner", 1)
    monitor.phase_finish("inner")
    monitor.step_complete("outer", 0)
    monitor.step_complete("outer", 1)
    assert [share for share, _ in seen] == [0.0, 0.0, 0.125, 0.25, 0.5, 1.0]
    assert [phase for _, phase in seen][2] == "inner"


def test_the_share_never_falls_and_never_passes_one() -> None:
    seen: list[tuple[float, str]] = []
    monitor = _monitor(seen)
    monitor.phase_start("one", None, 2)
    monitor.step_complete("one", 0)
    monitor.phase_finish("one")
    monitor.phase_start("two", None, 0)
    monitor.step_complete("two", 7)
    monitor.step_complete("unheard of", 3)
    shares = [share for share, _ in seen]
    assert shares == sorted(shares)
    assert max(shares) <= 1


def test_a_step_asks_tensorrt_to_go_on_until_the_build_is_cancelled() -> None:
    cancellation = Cancellation()
    monitor = _monitor([], cancellation)
    monitor.phase_start("one", None, 3)
    assert monitor.step_complete("one", 0) is True
    cancellation.request()
    assert monitor.step_complete("one", 1) is False


def test_messages_are_kept_by_severity_while_somebody_listens(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with listening() as messages:
        _record(logging.ERROR, "broken")
        _record(logging.WARNING, "odd")
        _record(logging.DEBUG, "by the way")
    _record(logging.ERROR, "afterwards")
    assert (messages.errors, messages.warnings) == (["broken"], ["odd"])
    assert [record.getMessage() for record in caplog.records] == ["odd"]


@needs_rtx
def test_a_severity_has_the_level_of_its_name() -> None:
    severities = load_bindings(Flavour.TENSORRT_RTX).ILogger.Severity
    levels = {
        "INTERNAL_ERROR": logging.ERROR,
        "ERROR": logging.ERROR,
        "WARNING": logging.WARNING,
        "INFO": logging.DEBUG,
        "VERBOSE": logging.NOTSET + 1,
    }
    assert {name: _LEVELS[int(severities.__members__[name])] for name in levels} == levels


def test_that_there_is_no_driver_is_no_lasting_error() -> None:
    messages = Messages(errors=["(cudaError 35: CUDA driver version is insufficient)", "real"])
    assert messages.lasting_errors == ["real"]
