"""The `qkexport` command. Importing it loads no framework; commands import what they use."""

from __future__ import annotations

import sys

from qkexport.cli.run import run


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))
