"""The line on a terminal that shows what a command is at, how far, and how long it will take."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def status_line() -> Iterator[logging.Handler]:
    """A log handler that keeps the latest message on the last line of stderr, until left."""
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
    except ImportError:
        yield logging.NullHandler()
        return
    pace = Pace(time.monotonic)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[pace]}", markup=False),
    )
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        yield _StatusHandler(progress, pace)


class Pace:
    """Time since a command began and, while the share of a job is known, an estimate of the rest.

    Args:
        clock: Seconds from any start.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._begin = clock()
        self._job = self._begin, 0.0
        self._latest: tuple[float, float] | None = None

    def update(self, share: float | None) -> None:
        """Takes note of how much is done; less than before begins another job."""
        now = self._clock()
        if share is not None and (self._latest is None or share < self._latest[1]):
            self._job = now, share
        self._latest = None if share is None else (now, share)

    def seconds_left(self) -> float | None:
        """Of the job, as long as what remains takes what was done took; None if not known."""
        began, first = self._job
        if self._latest is None or self._latest[1] <= first:
            return None
        at, share = self._latest
        left = (1.0 - share) * (at - began) / (share - first)
        return max(0.0, left - (self._clock() - at))

    def __str__(self) -> str:
        left = self.seconds_left()
        spent = _minutes(self._clock() - self._begin)
        return spent if left is None else f"{spent}, about {_minutes(left)} left"


def _minutes(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"


class _StatusHandler(logging.Handler):
    def __init__(self, progress: Any, pace: Pace) -> None:
        super().__init__(logging.INFO)
        self._progress = progress
        self._pace = pace
        # the field is formatted anew whenever the line is drawn
        self._task = progress.add_task("starting", total=None, pace=pace)

    def emit(self, record: logging.LogRecord) -> None:
        share: float | None = getattr(record, "share", None)
        self._pace.update(share)
        self._progress.update(self._task, description=record.getMessage())
        task = self._progress.tasks[self._task]
        task.total, task.completed = (None, 0.0) if share is None else (1.0, share)
