"""A request to a process of its own, and its answer."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from typing import Any, Final

from qkexport import errors
from qkexport.errors import QkexportError, UnsupportedModelError

_COMMAND: Final = (sys.executable, "-m", "qkexport.benchmark")


def ask(request: Mapping[str, Any]) -> dict[str, Any]:
    """What a fresh process answers to a request.

    Raises:
        QkexportError: The one that the process raised; UnsupportedModelError if it died.
    """
    done = subprocess.run(
        _COMMAND, input=json.dumps(request), capture_output=True, text=True, check=False
    )
    try:
        document = json.loads(done.stdout)
    except ValueError:
        raise UnsupportedModelError(_death(done.returncode, done.stderr)) from None
    if "error" in document:
        raise _error(**document["error"])
    answer: dict[str, Any] = document["answer"]
    return answer


def _error(
    type: str, message: str, note: str | None = None, hint: str | None = None
) -> QkexportError:
    """The same error again."""
    kind = getattr(errors, type, UnsupportedModelError)
    error: QkexportError = kind(message, note=note, hint=hint)
    return error


def _death(code: int, log: str) -> str:
    last = (log.strip().splitlines() or ["no message"])[-1]
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"The process that runs the model must answer, got {how}: {last}"
