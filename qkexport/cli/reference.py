"""The command line as one page of Markdown: `python -m qkexport.cli.reference > samples/CLI.md`."""

from __future__ import annotations

from typing import Final

import click

from qkexport.cli.command import COMMANDS, group

_WIDTH: Final = 98
_HEAD: Final = """\
# The command line

Written by `python -m qkexport.cli.reference` from the commands themselves; a test compares.
`qkexport COMMAND --help` prints the same.

| exit code | meaning |
|---|---|
| 0 | good |
| 1 | a result says no: a mismatch, too few attentions fused, a build that failed |
| 2 | wrong usage: an option, a name, a file that cannot be read |
| 3 | a backend that was asked for is not installed, or has no device here |
| 130 | interrupted |

Logs and progress go to stderr, answers to stdout. `--json` makes the answer one JSON document and
nothing else, also for errors. `NO_COLOR` turns colours off; they are off in a pipe anyway.
`--debug` adds tracebacks.

Shell completion: `eval "$(_QKEXPORT_COMPLETE=bash_source qkexport)"` in `~/.bashrc`, `zsh_source`
in `~/.zshrc`; for fish `_QKEXPORT_COMPLETE=fish_source qkexport | source`.
"""


def reference() -> str:
    """The help of every command under a heading of its own."""
    parts = [_HEAD]
    root = click.Context(group, info_name="qkexport", max_content_width=_WIDTH)
    for name in COMMANDS:
        command = group.get_command(root, name)
        assert command is not None  # COMMANDS lists what there is
        context = click.Context(
            command, info_name=name, parent=root, terminal_width=_WIDTH, max_content_width=_WIDTH
        )
        lines = command.get_help(context).rstrip().splitlines()
        parts.append(
            f"## qkexport {name}\n\n```text\n" + "\n".join(map(str.rstrip, lines)) + "\n```\n"
        )
    return "\n".join(parts)


if __name__ == "__main__":
    click.echo(reference(), nl=False)
