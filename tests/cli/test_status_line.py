"""The status line on a terminal: what it says, and when it knows how long is left."""

from __future__ import annotations

import logging
import os
import pty
import sys
import threading

import pytest

from qkexport.cli.log import logging_to_stderr
from qkexport.cli.status_line import Pace
from qkexport.progress import log_share


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_time_left_is_what_the_rest_takes_at_the_pace_so_far() -> None:
    clock = Clock()
    pace = Pace(clock)
    clock.now += 5  # work of unknown extent
    pace.update(None)
    assert str(pace) == "0:05"
    pace.update(0.0)
    assert pace.seconds_left() is None, "nothing is done yet"
    clock.now += 30
    pace.update(0.25)
    assert pace.seconds_left() == pytest.approx(90)
    clock.now += 20
    assert pace.seconds_left() == pytest.approx(70), "it passes while nothing is heard"
    assert str(pace) == "0:55, about 1:10 left"
    clock.now += 100
    assert pace.seconds_left() == 0, "late, not negative"


def test_a_job_that_starts_part_way_counts_from_there_and_a_smaller_share_starts_anew() -> None:
    clock = Clock()
    pace = Pace(clock)
    pace.update(0.5)
    clock.now += 10
    pace.update(0.75)
    assert pace.seconds_left() == pytest.approx(10)
    clock.now += 1
    pace.update(0.0)
    assert pace.seconds_left() is None
    clock.now += 4
    pace.update(0.5)
    assert pace.seconds_left() == pytest.approx(4)
    pace.update(None)
    assert pace.seconds_left() is None


def _on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> str:
    """What a terminal receives while one message with a share and one without are logged."""
    ours, theirs = pty.openpty()
    seen: list[bytes] = []

    def read() -> None:
        while True:
            try:
                seen.append(os.read(ours, 4096))
            except OSError:  # how Linux says that the other end was closed
                return

    reader = threading.Thread(target=read)
    reader.start()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(theirs, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        with logging_to_stderr(quiet=False, verbosity=0, status=True):
            logger = logging.getLogger("qkexport.test")
            log_share(logger, 0.0, "case [1] of 2")
            log_share(logger, 0.5, "case [2] of 2")
            logger.info("saving")
    reader.join()
    os.close(ours)
    return b"".join(seen).decode()


def test_a_terminal_shows_each_message_and_is_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    text = _on_a_terminal(monkeypatch)
    assert "saving" in text
    assert text.endswith("\x1b[2K") or "\x1b[2K" in text[text.rindex("saving") :]


def test_a_pipe_gets_no_status(capsys: pytest.CaptureFixture[str]) -> None:
    with logging_to_stderr(quiet=False, verbosity=0, status=True):
        log_share(logging.getLogger("qkexport.test"), 0.5, "case 2 of 2")
    assert capsys.readouterr().err == ""
