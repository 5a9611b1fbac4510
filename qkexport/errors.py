"""Exceptions of the package: the type says whose move it is, the text says what the move is.

Every message reads `<subject> <rule>, got <value>.` A note says what is accepted, a hint names the
next step. `exit_code` is what the command line returns for it.
"""

from __future__ import annotations

from typing import ClassVar


class QkexportError(Exception):
    """Base of all errors that qkexport raises on purpose.

    Args:
        message: One sentence: subject, rule and value.
        note: What is accepted instead.
        hint: What to do next.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, note: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.note = note
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.message]
        if self.note:
            lines.append(f"Note: {self.note}")
        if self.hint:
            lines.append(f"Hint: {self.hint}")
        return "\n".join(lines)


class UsageError(QkexportError):
    """The request itself is wrong: an option, a name, an input that cannot be used."""

    exit_code = 2


class InvalidSpecError(UsageError):
    """An attribute or input of QKNormAttention breaks the operator's contract."""


class LoadError(UsageError):
    """A source is missing, corrupt, of an unknown kind, or not to be trusted."""


class UnsupportedModelError(QkexportError):
    """The model is valid but cannot be traced, lowered or converted."""


class VerificationError(QkexportError):
    """A result differs from its source by more than the tolerance allows."""


class BuildError(QkexportError):
    """An engine could not be built, or was built into something that must not ship."""


class BackendUnavailableError(QkexportError):
    """A runtime that the request needs is not installed or has no device here."""

    exit_code = 3
