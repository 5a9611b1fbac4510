"""Shares of jobs in jobs."""

from __future__ import annotations

import logging

import pytest

from qkexport.progress import log_share, part

LOGGER = logging.getLogger("qkexport.test")


def _shares(caplog: pytest.LogCaptureFixture) -> list[float]:
    return [record.__dict__["share"] for record in caplog.records]


def test_parts_of_parts_are_shares_of_the_whole(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="qkexport")
    log_share(LOGGER, 0.5, "%s of it", "half")
    with part(1, 2):
        log_share(LOGGER, 0.5, "second half")
        with part(2, 4):
            log_share(LOGGER, 0.0, "its third quarter")
            log_share(LOGGER, 1.0, "done")
    with pytest.raises(ZeroDivisionError), part(0, 4):
        raise ZeroDivisionError
    log_share(LOGGER, 1.0, "all")
    assert _shares(caplog) == [0.5, 0.75, 0.75, 0.875, 1.0]
    assert caplog.messages[0] == "half of it"
