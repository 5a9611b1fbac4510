"""What a command hands back: one answer that can be printed as JSON or for people."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console

SCHEMA_VERSION: Final = 1


@dataclasses.dataclass(frozen=True)
class Outcome:
    """The result of one command.

    Attributes:
        passed: False makes the exit code 1.
        document: The JSON document; `schema_version` and `command` are added when it is printed.
        render: Prints the same for people.
    """

    passed: bool
    document: Mapping[str, Any]
    render: Callable[[Console], None]
