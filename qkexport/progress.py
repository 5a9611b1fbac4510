"""How far a job is whose extent is known, sent along with its log messages.

A terminal draws a bar and the time left from it; a log that nobody draws shows the messages alone.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Final

_RANGE: Final[ContextVar[tuple[float, float]]] = ContextVar("range", default=(0.0, 1.0))


def log_share(logger: logging.Logger, share: float, message: str, *args: object) -> None:
    """Logs a message that says how much is done.

    Args:
        logger: Where to.
        share: What is done of the job, or of the `part` of it that is at work, from 0 to 1.
        message: As for `logger.info`.
        args: Likewise.
    """
    start, end = _RANGE.get()
    logger.info(message, *args, extra={"share": start + share * (end - start)})


@contextlib.contextmanager
def part(index: int, count: int) -> Iterator[None]:
    """What is logged inside is the share of one of `count` equal parts of the job."""
    start, end = _RANGE.get()
    size = (end - start) / count
    token = _RANGE.set((start + index * size, start + (index + 1) * size))
    try:
        yield
    finally:
        _RANGE.reset(token)
