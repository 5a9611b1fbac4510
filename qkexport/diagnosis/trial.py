"""Tries probes side by side, each in a forked copy of a process that has imported torch once.

A probe may crash, hang, or load a library that does not fit: that ends its own copy alone.
"""

from __future__ import annotations

import dataclasses
import importlib
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import IO, TYPE_CHECKING, Final

from qkexport.diagnosis.capability import Capability, State
from qkexport.diagnosis.probes import PROBES
from qkexport.errors import BackendUnavailableError

if TYPE_CHECKING:
    from multiprocessing.context import ForkProcess

_FORK: Final = multiprocessing.get_context("fork")
# What several probes import: a second and more each, paid once.
_SHARED: Final = {"torch": "torch._dynamo", "onnx_ir": "onnx_ir"}
_SLOWEST: Final = ("convert", "hf")  # they start first
_LONGEST_DETAIL: Final = 1000  # far below the size of a pipe, so that sending never blocks


@dataclasses.dataclass(frozen=True)
class Answer:
    """What a probe found.

    Attributes:
        name: Of the capability.
        state: The verdict.
        detail: What was computed, or why it could not be.
        fix: What the probe itself advises; may be empty.
    """

    name: str
    state: State
    detail: str
    fix: str = ""


@dataclasses.dataclass(frozen=True)
class _Trial:
    name: str
    process: ForkProcess
    answer: Connection
    log: IO[bytes]
    timeout: float
    deadline: float


def try_probes(capabilities: Sequence[Capability], *, jobs: int | None = None) -> Iterator[Answer]:
    """Tries probes, and yields answers in the order in which they arrive.

    Args:
        capabilities: Which, and how long each may take.
        jobs: Probes that run at once; None: one for each processor.
    """
    _import_what_they_share(capabilities)
    waiting = sorted(capabilities, key=lambda capability: capability.name not in _SLOWEST)
    running: list[_Trial] = []
    limit = jobs or len(os.sched_getaffinity(0))
    while waiting or running:
        while waiting and len(running) < limit:
            running.append(_start(waiting.pop(0)))
        soonest = min(trial.deadline for trial in running)
        wait(
            [trial.process.sentinel for trial in running],
            timeout=max(0.0, soonest - time.monotonic()),
        )
        for trial in [trial for trial in running if _is_over(trial)]:
            running.remove(trial)
            yield _finish(trial)


def find_answer(name: str) -> Answer:
    """Runs a probe in this process."""
    try:
        return Answer(name, State.AVAILABLE, PROBES[name]())
    except BackendUnavailableError as error:
        return Answer(name, State.MISSING, error.message, error.hint or "")
    except Exception as error:
        text = (str(error).splitlines() or [""])[0][:_LONGEST_DETAIL]
        return Answer(name, State.BROKEN, f"{type(error).__name__}: {text}")


def _import_what_they_share(capabilities: Sequence[Capability]) -> None:
    wanted = {module for capability in capabilities for module in capability.modules}
    for name, module in _SHARED.items():
        if name in wanted:
            try:
                importlib.import_module(module)
            except Exception:  # each probe that needs it will say so in its own words
                return


def _start(capability: Capability) -> _Trial:
    receiver, sender = _FORK.Pipe(duplex=False)
    log = tempfile.TemporaryFile()  # noqa: SIM115  closed when the trial is over
    process = _FORK.Process(target=_run, args=(capability.name, sender, log))
    process.start()
    sender.close()
    deadline = time.monotonic() + capability.timeout
    return _Trial(capability.name, process, receiver, log, capability.timeout, deadline)


def _run(name: str, answer: Connection, log: IO[bytes]) -> None:
    for stream in (1, 2):
        os.dup2(log.fileno(), stream)
    sys.stdout = sys.stderr = open(  # noqa: SIM115  until the process ends
        log.fileno(), "w", buffering=1, closefd=False, encoding="utf-8"
    )
    answer.send(find_answer(name))


def _is_over(trial: _Trial) -> bool:
    return not trial.process.is_alive() or time.monotonic() >= trial.deadline


def _finish(trial: _Trial) -> Answer:
    try:
        if trial.process.is_alive():
            trial.process.kill()
            trial.process.join()
            detail = f"no answer within {trial.timeout:.0f} s"
            return Answer(trial.name, State.BROKEN, detail)
        trial.process.join()
        if trial.process.exitcode == 0 and trial.answer.poll():
            found: Answer = trial.answer.recv()
            return found
        return Answer(trial.name, State.BROKEN, _death(trial))
    finally:
        trial.answer.close()
        trial.log.close()
        trial.process.close()


def _death(trial: _Trial) -> str:
    trial.log.seek(0)
    lines = [
        line for line in trial.log.read().decode(errors="replace").splitlines() if line.strip()
    ]
    reason = lines[-1][:_LONGEST_DETAIL] if lines else "it said nothing"
    code = trial.process.exitcode or 0
    if code < 0:
        return f"the process was killed by signal {-code}: {reason}"
    return f"the process failed: {reason}"
