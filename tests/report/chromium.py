"""Headless Chromium, where the machine has it: how a page looks and what it complains about."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
from pathlib import Path

import numpy as np
from PIL import Image

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--hide-scrollbars", "--enable-logging=stderr",
)  # fmt: skip
_HEIGHT = 2400
SCALE = 0.5  # of the picture
_CONSOLE = "CONSOLE"


def find_chromium() -> str | None:
    """The browser's path, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@dataclasses.dataclass(frozen=True)
class Shot:
    """A page as the browser drew it.

    Attributes:
        pixels: `[height, width, 3]` uint8.
        console: What the page wrote to its console, errors included.
    """

    pixels: np.ndarray
    console: tuple[str, ...]


def take_shot(page: Path, folder: Path, *, width: int = 1280, dark: bool = False) -> Shot:
    """Opens a file in a browser of its own and photographs it.

    Args:
        page: HTML file.
        folder: For the picture and the browser's profile.
        width: Of the window.
        dark: As on a machine that prefers dark pages.
    """
    browser = find_chromium()
    assert browser is not None
    picture = folder / "shot.png"
    options = [
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width},{_HEIGHT}",
        f"--force-device-scale-factor={SCALE}",
    ]
    if dark:
        options.append("--blink-settings=preferredColorScheme=0")
    done = subprocess.run(
        [browser, *_FLAGS, *options, f"--screenshot={picture}", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert picture.is_file(), done.stderr
    lines = tuple(line for line in done.stderr.splitlines() if _CONSOLE in line)
    return Shot(np.asarray(Image.open(picture).convert("RGB")), lines)
