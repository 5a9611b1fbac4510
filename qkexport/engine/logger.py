"""TensorRT's log as records of `logging`, and a memory of what decides over a build."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from qkexport.engine.bindings import Bindings

if TYPE_CHECKING:
    import tensorrt as trt

LOG: Final = logging.getLogger("qkexport.tensorrt")

# By severity: internal error, error, warning, information, verbose. Of the last a build sends tens
# of thousands, and a severity's number is found ten times faster than its name.
_LEVELS: Final = (
    logging.ERROR,
    logging.ERROR,
    logging.WARNING,
    logging.DEBUG,
    logging.NOTSET + 1,
)
# TensorRT-RTX probes for a driver and logs errors on machines that have none; the build goes on.
_NO_DRIVER: Final = "CUDA driver version is insufficient"
# Said of every int64 input; the manifest states the types.
_NO_NEWS: Final = "has Int64 binding"


@dataclasses.dataclass
class Messages:
    """What TensorRT said, by severity.

    Attributes:
        errors: Messages that explain a failure.
        warnings: Messages that a check may turn into one.
    """

    errors: list[str] = dataclasses.field(default_factory=list)
    warnings: list[str] = dataclasses.field(default_factory=list)

    @property
    def lasting_errors(self) -> list[str]:
        """Errors that say more than that there is no driver."""
        return [text for text in self.errors if _NO_DRIVER not in text]


_loggers: dict[str, trt.ILogger] = {}
_listeners: list[Messages] = []
# TensorRT keeps one logger a process and would tell one build's messages to another.
_one_at_a_time: Final = threading.Lock()


@contextlib.contextmanager
def listening() -> Iterator[Messages]:
    """Collects what TensorRT says in the block; blocks of other threads wait for its end."""
    with _one_at_a_time:
        messages = Messages()
        _listeners.append(messages)
        try:
            yield messages
        finally:
            _listeners.remove(messages)


def shared_logger(bindings: Bindings) -> trt.ILogger:
    """The one logger of a flavour: TensorRT keeps the first that it is given, and no other."""

    class Logger(bindings.ILogger):  # type: ignore[name-defined,misc,unused-ignore]
        def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
            _record(_LEVELS[int(severity)], msg)

    return _loggers.setdefault(bindings.__name__, Logger())


def _record(level: int, text: str) -> None:
    for messages in _listeners:
        if level >= logging.ERROR:
            messages.errors.append(text)
        elif level == logging.WARNING:
            messages.warnings.append(text)
    # Errors become the exception of the build, or a warning if it succeeds all the same.
    if level >= logging.ERROR or _NO_NEWS in text:
        level = logging.DEBUG
    if LOG.isEnabledFor(level):
        LOG.log(level, "%s", text)
