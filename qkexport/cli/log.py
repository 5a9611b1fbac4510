"""Logs on stderr; on a terminal the current stage is shown by a spinner with the time it took."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any, Final

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)


@contextlib.contextmanager
def logging_to_stderr(*, quiet: bool, verbosity: int, spin: bool) -> Iterator[None]:
    """Sends the package's log to stderr while a command runs.

    Args:
        quiet: Errors only.
        verbosity: 0 warnings, 1 stages, 2 everything.
        spin: Show stages as a spinner where stderr is a terminal.
    """
    logger = logging.getLogger("qkexport")
    level = logging.ERROR if quiet else _LEVELS[min(verbosity, len(_LEVELS) - 1)]
    stream = logging.StreamHandler(sys.stderr)
    stream.setLevel(level)
    stream.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        if verbosity < len(_LEVELS) - 1:
            warnings.simplefilter("ignore")  # of libraries, about their own future
        handlers: list[logging.Handler] = [stream]
        if spin and not quiet and verbosity == 0 and sys.stderr.isatty():
            handlers.append(stack.enter_context(_spinner()))
        saved = logger.level
        logger.setLevel(min(handler.level for handler in handlers))
        for handler in handlers:
            logger.addHandler(handler)
        try:
            yield
        finally:
            logger.setLevel(saved)
            for handler in handlers:
                logger.removeHandler(handler)


@contextlib.contextmanager
def _spinner() -> Iterator[logging.Handler]:
    try:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
    except ImportError:
        yield logging.NullHandler()
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as progress:
        yield _StageHandler(progress)


class _StageHandler(logging.Handler):
    """Shows the latest message, and how long the command has been at work."""

    def __init__(self, progress: Any) -> None:
        super().__init__(logging.INFO)
        self._progress = progress
        self._task = progress.add_task("starting", total=None)

    def emit(self, record: logging.LogRecord) -> None:
        self._progress.update(self._task, description=record.getMessage())
