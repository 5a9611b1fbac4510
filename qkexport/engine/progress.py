"""Progress of a build as a number, and the way to stop it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from qkexport.engine.bindings import Bindings

if TYPE_CHECKING:
    import tensorrt as trt

Progress = Callable[[float, str], None]


class Cancellation:
    """A flag that the build looks at whenever TensorRT reports a step."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def request(self) -> None:
        """Asks the build to end."""
        self._event.set()

    @property
    def requested(self) -> bool:
        return self._event.is_set()


class _Phases:
    """Open phases, outermost first: steps done and steps in all of each."""

    def __init__(self) -> None:
        self.steps: dict[str, tuple[int, int]] = {}

    def fraction(self) -> float:
        """Share of the work done: an inner phase is one step of the phase around it."""
        done, weight = 0.0, 1.0
        for finished, total in self.steps.values():
            done += weight * min(finished, total) / max(total, 1)
            weight /= max(total, 1)
        return min(done, 1.0)


def make_monitor(
    bindings: Bindings, progress: Progress, cancellation: Cancellation
) -> trt.IProgressMonitor:
    """A monitor for one build.

    Args:
        bindings: The flavour; its monitors must derive from its own base class.
        progress: Called with a share of 0 to 1 that never falls, and the name of the phase.
        cancellation: When requested, TensorRT ends the build at its next step.
    """
    phases = _Phases()
    highest = 0.0

    def report(phase: str) -> None:
        nonlocal highest
        highest = max(highest, phases.fraction())
        progress(highest, phase)

    class Monitor(bindings.IProgressMonitor):  # type: ignore[name-defined,misc,unused-ignore]
        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            phases.steps[phase_name] = (0, num_steps)
            report(phase_name)

        def step_complete(self, phase_name: str, step: int) -> bool:
            if phase_name in phases.steps:
                phases.steps[phase_name] = (step + 1, phases.steps[phase_name][1])
            report(phase_name)
            return not cancellation.requested

        def phase_finish(self, phase_name: str) -> None:
            phases.steps.pop(phase_name, None)

    return Monitor()
