"""`qkexport --help` answers at once."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

# More than a bare interpreter that imports click needs, on any machine.
_ALLOWED_SECONDS = 0.3


def _median_seconds(code: str, arguments: tuple[str, ...] = ()) -> float:
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-c", code, *arguments], stdout=subprocess.DEVNULL, check=True
        )
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def test_help_takes_hardly_longer_than_an_interpreter_with_click() -> None:
    bare = _median_seconds("import click")
    ours = _median_seconds("from qkexport.cli import main; main()", ("--help",))
    assert ours - bare < _ALLOWED_SECONDS, f"{ours:.3f} s against {bare:.3f} s"
