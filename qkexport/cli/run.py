"""Runs a command line: prints its outcome, and maps every exception to an exit code.

Exit codes: 0 good, 1 a result says no, 2 usage, 3 a required backend is absent.
"""

from __future__ import annotations

import contextlib
import json
import sys
import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import click

from qkexport.cli.command import group
from qkexport.cli.outcome import SCHEMA_VERSION, Outcome
from qkexport.errors import QkexportError

if TYPE_CHECKING:
    from rich.console import Console

_OUTPUT_CLOSED: Final = 1
_INTERRUPTED: Final = 130
# A pipe has no width of its own; at rich's default of 80 columns a table of specs is unreadable.
_PIPE_WIDTH: Final = 160


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code."""
    options = _Common(arguments)
    try:
        with options.logging():
            outcome = group.main(list(arguments), prog_name="qkexport", standalone_mode=False)
        if not isinstance(outcome, Outcome):
            return outcome if isinstance(outcome, int) else 0  # --help and --version print alone
        _print(outcome, _command_name(arguments), options.as_json)
    except BrokenPipeError:
        return _OUTPUT_CLOSED
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except Exception as error:
        return _report(error, _command_name(arguments), options)
    return 0 if outcome.passed else 1


class _Common:
    """The options that must be known before, and when, parsing fails."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self.as_json = "--json" in arguments
        self.debug = "--debug" in arguments
        self.quiet = "-q" in arguments or "--quiet" in arguments
        self.verbosity = sum(
            argument.count("v") if _is_verbose(argument) else argument == "--verbose"
            for argument in arguments
        )

    def logging(self) -> contextlib.AbstractContextManager[None]:
        from qkexport.cli.log import logging_to_stderr

        return logging_to_stderr(
            quiet=self.quiet, verbosity=self.verbosity, status=not self.as_json
        )


def _is_verbose(argument: str) -> bool:
    return len(argument) > 1 and argument[0] == "-" and set(argument[1:]) == {"v"}


def _command_name(arguments: Sequence[str]) -> str:
    return next((argument for argument in arguments if not argument.startswith("-")), "")


def _print(outcome: Outcome, command: str, as_json: bool) -> None:
    if as_json:
        _print_json(command, outcome.document)
    else:
        outcome.render(_console())
    sys.stdout.flush()


def _print_json(command: str, document: Any) -> None:
    whole = {"schema_version": SCHEMA_VERSION, "command": command, **document}
    click.echo(json.dumps(whole, indent=2, allow_nan=False))


def _console() -> Console:
    try:
        from rich.console import Console
    except ImportError:
        from qkexport.cli.plain_console import PlainConsole

        return cast("Console", PlainConsole())
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console.width = max(console.width, _PIPE_WIDTH)
    return console


def _report(error: Exception, command: str, options: _Common) -> int:
    """Prints an exception and returns the exit code that stands for it."""
    if options.debug:
        traceback.print_exception(error)
    code = _exit_code(error)
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True)
        return code
    if options.as_json:
        described = {"type": type(error).__name__, **_parts(error)}
        _print_json(command, {"error": described, "exit_code": code})
    click.echo(f"{_prefix(error)}: {_text(error)}", err=True)
    return code


def _exit_code(error: Exception) -> int:
    return error.exit_code if isinstance(error, QkexportError | click.ClickException) else 1


def _prefix(error: Exception) -> str:
    expected = isinstance(error, QkexportError | click.ClickException | OSError)
    return "Error" if expected else "Internal error"


def _text(error: Exception) -> str:
    if isinstance(error, QkexportError):
        return str(error)
    if isinstance(error, click.UsageError) and error.ctx is not None:
        return f"{error.format_message()}\nHint: {error.ctx.command_path} --help"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError):
        return str(error)
    return f"{type(error).__name__}: {error}\nHint: run again with --debug and report the trace."


def _parts(error: Exception) -> dict[str, str | None]:
    if isinstance(error, QkexportError):
        return {"message": error.message, "note": error.note, "hint": error.hint}
    if isinstance(error, click.ClickException):
        return {"message": error.format_message(), "note": None, "hint": None}
    return {"message": str(error), "note": None, "hint": "run again with --debug."}
