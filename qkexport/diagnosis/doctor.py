"""`doctor`: tries every capability in a process of its own and says how to get what is missing.

A probe computes an attention whose answer is known. It may crash, hang or load a library that does
not fit; that is an answer too, and never takes the doctor with it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from qkexport.diagnosis.capability import (
    CAPABILITIES,
    Capability,
    Diagnosis,
    DoctorReport,
    State,
    install_command,
)
from qkexport.errors import UsageError

__all__ = ["DoctorReport", "doctor"]


def doctor(
    names: Sequence[str] = (), *, progress: Callable[[str], None] | None = None
) -> DoctorReport:
    """Tries capabilities.

    Args:
        names: Which; empty: all.
        progress: Called with the name of each capability before it is tried.

    Returns:
        A verdict for each; true when models can be converted and nothing installed is broken.

    Raises:
        UsageError: A name is unknown.
    """
    known = {capability.name: capability for capability in CAPABILITIES}
    for name in names:
        if name not in known:
            message = f"Capability must be a known one, got {name!r}."
            raise UsageError(message, note=f"accepted: {', '.join(known)}.")
    diagnoses = []
    for name in names or known:
        if progress is not None:
            progress(name)
        diagnoses.append(diagnose(known[name]))
    return DoctorReport(tuple(diagnoses), platform.python_version(), platform.platform())


def diagnose(capability: Capability) -> Diagnosis:
    """Tries one capability."""
    versions = _versions(capability.packages)
    absent = [name for name in capability.modules if not _importable(name)]
    if absent:
        detail = f"not installed: {', '.join(absent)}"
        return Diagnosis(capability, State.MISSING, detail, versions, install_command(absent))
    state, detail, fix = _probe(capability)
    if state is State.AVAILABLE:
        return Diagnosis(capability, state, detail, versions)
    return Diagnosis(capability, state, detail, versions, fix or capability.fix)


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


def _probe(capability: Capability) -> tuple[State, str, str]:
    command = [sys.executable, "-m", "qkexport.diagnosis", capability.name]
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=capability.timeout,
            check=False,
            env={**os.environ, "PYTHONPATH": path},
        )
    except subprocess.TimeoutExpired:
        return State.BROKEN, f"no answer within {capability.timeout:.0f} s", ""
    if done.returncode:
        return State.BROKEN, _death(done), ""
    try:
        answer = json.loads(done.stdout.splitlines()[-1])
        return State(answer["state"]), str(answer["detail"]), str(answer["fix"])
    except (IndexError, KeyError, ValueError):
        return State.BROKEN, f"the probe answered {done.stdout[-200:]!r}", ""


def _death(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    reason = lines[-1] if lines else "it said nothing"
    if done.returncode < 0:
        return f"the process was killed by signal {-done.returncode}: {reason}"
    return f"the process failed: {reason}"
