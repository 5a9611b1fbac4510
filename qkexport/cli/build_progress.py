"""Progress of a build as log messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from qkexport.progress import log_share

_LOG: Final = logging.getLogger(__name__)
_STEPS: Final = 20


def log_progress() -> Callable[[float, str], None]:
    """A callback that logs each twentieth of the work once."""
    told = -1

    def progress(share: float, phase: str) -> None:
        nonlocal told
        step = int(share * _STEPS)
        if step > told:
            told = step
            log_share(_LOG, share, "building, %.0f %%: %s", share * 100, phase)

    return progress
