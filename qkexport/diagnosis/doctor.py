"""`doctor`: tries every capability in a process of its own and says how to get what is missing.

A probe computes an attention whose answer is known. It may crash, hang or load a library that does
not fit; that is an answer too, and never takes the doctor with it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import logging
import os
import platform
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from qkexport.diagnosis.capability import (
    CAPABILITIES,
    Capability,
    Diagnosis,
    DoctorReport,
    State,
    install_command,
)
from qkexport.errors import UsageError
from qkexport.names import suggest
from qkexport.progress import log_share

__all__ = ["DoctorReport", "doctor"]

_LOG: Final = logging.getLogger(__name__)

# Of a first import of torch from a slow disk; every probe has a limit of its own on top of it.
_START_SECONDS: Final = 120.0


def doctor(names: Sequence[str] = ()) -> DoctorReport:
    """Tries capabilities, side by side.

    Args:
        names: Which; empty: all.

    Returns:
        A verdict for each; true when models can be converted and nothing installed is broken.

    Raises:
        UsageError: A name is unknown.

    Example:
        >>> import qkexport
        >>> report = qkexport.doctor(["pytorch"])
        >>> [(item.capability.name, str(item.state)) for item in report.diagnoses]
        [('pytorch', 'available')]
    """
    known = {capability.name: capability for capability in CAPABILITIES}
    for name in names:
        if name not in known:
            message = f"Capability must be a known one, got {name!r}."
            note = f"accepted: {', '.join(known)}."
            raise UsageError(message, note=note, hint=suggest(name, known))
    diagnoses = diagnose([known[name] for name in names or known])
    return DoctorReport(diagnoses, platform.python_version(), platform.platform())


def diagnose(capabilities: Sequence[Capability]) -> tuple[Diagnosis, ...]:
    """Tries capabilities and returns a verdict for each, in their order."""
    absent = {
        capability.name: [name for name in capability.modules if not _importable(name)]
        for capability in capabilities
    }
    tried = [capability for capability in capabilities if not absent[capability.name]]
    answers = {}
    for answer in _answers(tried):
        answers[answer["name"]] = answer
        share = len(answers) / len(tried)
        log_share(_LOG, share, "tried %s, still trying others", answer["name"])
    return tuple(
        _missing(capability, absent[capability.name])
        if absent[capability.name]
        else _diagnosis(capability, answers[capability.name])
        for capability in capabilities
    )


def _missing(capability: Capability, modules: Sequence[str]) -> Diagnosis:
    detail = f"not installed: {', '.join(modules)}"
    versions = _versions(capability.packages)
    return Diagnosis(capability, State.MISSING, detail, versions, install_command(modules))


def _diagnosis(capability: Capability, answer: dict[str, Any]) -> Diagnosis:
    state = State(answer["state"])
    fix = "" if state is State.AVAILABLE else str(answer.get("fix") or capability.fix)
    return Diagnosis(capability, state, str(answer["detail"]), _versions(capability.packages), fix)


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False


def _versions(packages: Sequence[str]) -> dict[str, str]:
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _answers(capabilities: Sequence[Capability]) -> Iterator[dict[str, Any]]:
    """The answers of a process that tries the probes, then what is known where it gave none."""
    if not capabilities:
        return
    unanswered = [capability.name for capability in capabilities]
    limit = _START_SECONDS + sum(capability.timeout for capability in capabilities)
    with tempfile.TemporaryFile() as log, _start(unanswered, log) as process:
        alarm = threading.Timer(limit, process.kill)
        alarm.start()
        try:
            for line in process.stdout or ():
                answer = _parse(line)
                if answer.get("name") in unanswered:
                    unanswered.remove(answer["name"])
                    yield answer
        except BaseException:
            process.kill()
            raise
        finally:
            alarm.cancel()
        code = process.wait()
        log.seek(0)
        reason = _death(code, log.read().decode(errors="replace"))
    for name in unanswered:
        yield {"name": name, "state": str(State.BROKEN), "detail": reason}


def _start(names: Sequence[str], log: Any) -> subprocess.Popen[str]:
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, "-m", "qkexport.diagnosis", *names],
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def _parse(line: str) -> dict[str, Any]:
    try:
        answer = json.loads(line)
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _death(code: int, log: str) -> str:
    lines = [line for line in log.splitlines() if line.strip()]
    reason = lines[-1] if lines else "it said nothing"
    how = f"was killed by signal {-code}" if code < 0 else "ended without an answer"
    return f"the process of the probes {how}: {reason}"
