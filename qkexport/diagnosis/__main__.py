"""Runs one probe and prints its answer as a line of JSON: the doctor's subprocess."""

from __future__ import annotations

import contextlib
import json
import sys
import warnings

from qkexport.diagnosis.capability import State
from qkexport.diagnosis.probes import PROBES
from qkexport.errors import BackendUnavailableError


def main(name: str) -> None:
    """Prints what the probe of a capability found."""
    warnings.simplefilter("ignore")
    with contextlib.redirect_stdout(sys.stderr):
        answer = _answer(name)
    print(json.dumps(answer))  # noqa: T201  the answer itself


def _answer(name: str) -> dict[str, str]:
    try:
        detail = PROBES[name]()
    except BackendUnavailableError as error:
        return {"state": str(State.MISSING), "detail": error.message, "fix": error.hint or ""}
    except Exception as error:
        text = (str(error).splitlines() or [""])[0]
        return {"state": str(State.BROKEN), "detail": f"{type(error).__name__}: {text}", "fix": ""}
    return {"state": str(State.AVAILABLE), "detail": detail, "fix": ""}


if __name__ == "__main__":
    main(sys.argv[1])
