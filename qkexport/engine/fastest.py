"""`--attention auto` on a GPU: plugin and native are built, run, and the faster one is kept."""

from __future__ import annotations

import dataclasses
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from qkexport.engine.evidence import keep_evidence
from qkexport.engine.options import AttentionChoice
from qkexport.engine.result import BuildResult
from qkexport.errors import QkexportError
from qkexport.manifest import FileRecord, Manifest, ParityEvidence, write_manifest

_LOG: Final = logging.getLogger(__name__)
# Enough for a median that a clock change does not move, little beside two builds.
_WARM_UPS: Final = 5
_REPEATS: Final = 50

Build = Callable[[AttentionChoice, Path], BuildResult]
Measure = Callable[[Path], float]


def keep_fastest(build: Build, measure: Measure, output: Path) -> BuildResult:
    """Builds an engine with each kind of attention and keeps the one that runs faster.

    Args:
        build: Builds with a kind of attention, into a path.
        measure: Seconds that an engine takes.
        output: Where the kept engine goes.

    Raises:
        QkexportError: Neither could be built; the reason of the first is told.
    """
    output.parent.mkdir(parents=True, exist_ok=True)
    failures: list[QkexportError] = []
    results: dict[AttentionChoice, tuple[float, BuildResult]] = {}
    with tempfile.TemporaryDirectory(prefix=".qkexport-", dir=output.parent) as folder:
        for choice in (AttentionChoice.PLUGIN, AttentionChoice.NATIVE):
            path = Path(folder) / f"{choice}{output.suffix}"
            try:
                result = build(choice, path)
                if result:
                    results[choice] = (measure(path), result)
                if result.manifest.op_version is None:
                    break  # no QKNormAttention: there is nothing to choose
            except QkexportError as error:
                _LOG.warning("attention %s is out: %s", choice, error)
                failures.append(error)
        if not results:
            raise failures[0]
        best = min(results, key=lambda choice: results[choice][0])
        return _keep(results, best, Path(folder) / f"{best}{output.suffix}", output)


def _keep(
    results: dict[AttentionChoice, tuple[float, BuildResult]],
    best: AttentionChoice,
    path: Path,
    output: Path,
) -> BuildResult:
    times = ", ".join(f"{choice} {1e3 * each[0]:.3f} ms" for choice, each in results.items())
    alone = "" if len(results) > 1 else "; the other one could not be built"
    reason = f"the faster one on this GPU: {times}{alone}"
    _LOG.info("attention %s is %s", best, reason)
    result = results[best][1]
    manifest = keep_evidence(_named(result.manifest, output.name), output)
    path.replace(output)
    write_manifest(output, manifest)
    return dataclasses.replace(result, output=output, manifest=manifest, attention_reason=reason)


def _named(manifest: Manifest, name: str) -> Manifest:
    record = FileRecord(name, manifest.engine.sha256)
    parity = ParityEvidence("RAN", "the engine ran at its optimum shapes, and was timed")
    return dataclasses.replace(manifest, engine=record, parity=parity)


def measure_engine(path: Path) -> float:
    """Median seconds of one inference at the first profile's optimum shapes, copies left out.

    Raises:
        BackendUnavailableError: There is no GPU or no cuda-python.
    """
    from qkexport.run.tensorrt import TrtRunner, optimum_inputs

    with TrtRunner(path) as runner:
        runner.run(optimum_inputs(runner.inputs, runner.manifest))
        times = []
        for _ in range(_WARM_UPS + _REPEATS):
            start = time.perf_counter()
            runner.repeat()
            times.append(time.perf_counter() - start)
    return statistics.median(times[_WARM_UPS:])
