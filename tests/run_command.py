"""A program that must succeed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def run_command(*command: str | Path, **environment: str) -> str:
    """What a program printed, both streams, with variables added to its environment."""
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
