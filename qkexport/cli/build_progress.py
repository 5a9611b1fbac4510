"""Progress of a build as log lines; on a terminal the last one stands there as a bar."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

_LOG: Final = logging.getLogger(__name__)
_BAR_WIDTH: Final = 20


def log_progress() -> Callable[[float, str], None]:
    """A callback that logs each twentieth of the work once."""
    shown = -1

    def progress(share: float, phase: str) -> None:
        nonlocal shown
        filled = int(share * _BAR_WIDTH)
        if filled > shown:
            shown = filled
            bar = "━" * filled + "╌" * (_BAR_WIDTH - filled)
            _LOG.info("building %s %3.0f %% %s", bar, share * 100, phase)

    return progress
