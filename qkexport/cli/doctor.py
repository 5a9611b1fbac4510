"""`qkexport doctor`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import click

from qkexport.cli.command import Command
from qkexport.cli.outcome import Outcome

if TYPE_CHECKING:
    from rich.console import Console

    from qkexport.diagnosis.doctor import DoctorReport

_LOG: Final = logging.getLogger(__name__)


@click.command("doctor", cls=Command)
@click.argument("names", nargs=-1, metavar="[CAPABILITY]...")
def command(names: tuple[str, ...]) -> Outcome:
    r"""Say what works here, what is missing for what, and the command that fixes it.

    Every capability is tried on an attention whose answer is known, in a process of its own.
    Exit code 1: models cannot be converted here, or something that is installed is broken.

    \b
    Examples:
    qkexport doctor
    qkexport doctor convert ort --json
    """
    from qkexport.diagnosis.doctor import doctor

    _LOG.info("trying %s", ", ".join(names) or "every capability")
    report = doctor(names)
    return Outcome(bool(report), report.to_dict(), lambda console: print_report(report, console))


_MARKS: Final = {"available": ("ok", "green"), "missing": ("--", "yellow"), "broken": ("!!", "red")}


def print_report(report: DoctorReport, console: Console) -> None:
    """Prints one line for each capability and how to get what is missing."""
    console.print(f"Python {report.python} on {report.platform}")
    for diagnosis in report.diagnoses:
        mark, style = _MARKS[str(diagnosis.state)]
        capability = diagnosis.capability
        versions = ", ".join(f"{name} {version}" for name, version in diagnosis.versions.items())
        console.print(f"{mark} {capability.name:<13} {capability.purpose}", style=style)
        console.print(f"   {diagnosis.detail}" + (f" ({versions})" if versions else ""))
        if diagnosis.fix:
            console.print(f"   fix: {diagnosis.fix}")
