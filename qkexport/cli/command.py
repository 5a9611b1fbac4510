"""The base of every command: the options that all of them have, and the group that finds them."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import sys
from typing import Any, Final

import click

from qkexport._version import __version__

COMMANDS: Final = ("convert", "inspect", "build", "run", "parity", "bench", "doctor")
_MODULES: Final = {"run": "run_engine"}  # `run` runs the command line itself


class Command(click.Command):
    """A command that returns an `Outcome`; takes --json, -v, -q and --debug like all others."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # docstrings are raw; click wants the character that keeps the lines of a paragraph
        self.help = (self.help or "").replace("\\b\n", "\b\n")
        self.params.extend(_common_options())

    def invoke(self, ctx: click.Context) -> Any:
        # what libraries and model code print goes to stderr: stdout carries the answer alone
        with contextlib.redirect_stdout(sys.stderr):
            return super().invoke(ctx)


def _common_options() -> list[click.Option]:
    return [
        click.Option(
            ["--json", "as_json"],
            is_flag=True,
            expose_value=False,
            help="Print one JSON document on stdout and nothing else.",
        ),
        click.Option(
            ["-v", "--verbose"], count=True, expose_value=False, help="Log more; -vv logs all."
        ),
        click.Option(["-q", "--quiet"], is_flag=True, expose_value=False, help="Log errors only."),
        click.Option(["--debug"], is_flag=True, expose_value=False, help="Show tracebacks."),
    ]


class Group(click.Group):
    """Imports a command's module when the command is used, and suggests names close to a typo."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = _MODULES.get(cmd_name, cmd_name)
        command: click.Command = importlib.import_module(f"qkexport.cli.{module}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            close = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            message = f"No such command {name!r}.{hint} Commands: {', '.join(COMMANDS)}."
            raise click.UsageError(message, ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="qkexport")
def group() -> None:
    """Convert models with QK-norm attention, and prove that the result computes the same."""
