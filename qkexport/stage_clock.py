"""Announces the stages of a long job in the log, and keeps how long each took."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
from collections.abc import Iterator
from typing import Final

_LOG: Final = logging.getLogger(__name__)


@dataclasses.dataclass
class StageClock:
    """Seconds of each stage, by its name, in order."""

    seconds: dict[str, float] = dataclasses.field(default_factory=dict)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        _LOG.info("%s", name)
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start
