"""Logs on stderr; on a terminal the current stage stands there with its progress."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Final

from qkexport.cli.status_line import status_line

_LEVELS: Final = (logging.WARNING, logging.INFO, logging.DEBUG)


@contextlib.contextmanager
def logging_to_stderr(*, quiet: bool, verbosity: int, status: bool) -> Iterator[None]:
    """Sends the package's log to stderr while a command runs.

    Args:
        quiet: Errors only.
        verbosity: 0 warnings, 1 stages, 2 everything.
        status: Show the current stage where stderr is a terminal.
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
        if status and not quiet and verbosity == 0 and sys.stderr.isatty():
            handlers.append(stack.enter_context(status_line()))
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
