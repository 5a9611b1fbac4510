"""Prints text where rich is not installed: the doctor has to speak before anything is."""

from __future__ import annotations

import click


class PlainConsole:
    """The one method of rich's Console that needs nothing: `print`."""

    def print(self, *parts: object, style: str | None = None) -> None:
        """Prints parts separated by spaces; styles are ignored."""
        del style
        click.echo(" ".join(map(str, parts)))
