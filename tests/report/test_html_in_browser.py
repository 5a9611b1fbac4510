"""The HTML report in a real browser: it is drawn, in light and in dark, and nothing complains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from chromium import Shot, find_chromium, take_shot
from parity_results import eventful_result

from qkexport.report.html import html_report

pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason="NO CHROMIUM HERE: the HTML report was not looked at"
)
RED = np.array([198, 32, 58])  # beyond the limit


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(html_report(eventful_result()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def light(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Shot:
    return take_shot(page, tmp_path_factory.mktemp("light"))


def test_the_page_is_drawn(light: Shot) -> None:
    height, width, _ = light.pixels.shape
    assert (height, width) == (1200, 640)
    upper = light.pixels[:800]
    colours, counts = np.unique(upper.reshape(-1, 3), axis=0, return_counts=True)
    assert len(colours) > 200  # text is smoothed, and verdicts have colours
    assert counts.max() / counts.sum() < 0.9
    rows_with_ink = (upper.std(axis=(1, 2)) > 2).mean()
    assert rows_with_ink > 0.5


def test_what_is_beyond_its_limit_is_red(light: Shot) -> None:
    assert (np.abs(light.pixels.astype(int) - RED).max(axis=2) <= 2).sum() > 100


def test_the_console_stays_empty(light: Shot) -> None:
    assert light.console == ()


def test_a_broken_page_would_be_noticed(tmp_path: Path) -> None:
    path = tmp_path / "broken.html"
    path.write_text("<!DOCTYPE html><title>x</title><script>console.error('no')</script>")
    shot = take_shot(path, tmp_path)
    assert len(shot.console) == 1
    assert len(np.unique(shot.pixels)) == 1


def test_a_dark_page_is_dark_and_still_legible(page: Path, tmp_path: Path) -> None:
    shot = take_shot(page, tmp_path, dark=True)
    assert np.median(shot.pixels) < 60
    assert shot.pixels.max() > 200
    assert shot.console == ()


def test_a_narrow_window_needs_no_sideways_scrolling(page: Path, tmp_path: Path) -> None:
    shot = take_shot(page, tmp_path, width=500)
    assert shot.pixels[:, -1].std() < 12  # the margin on the right is empty
