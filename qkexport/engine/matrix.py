"""Many models for many targets: each cell is one `qkexport build` in a process of its own.

TensorRT can end a process that it does not like; a cell that dies takes no other with it. With the
cache, a matrix that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any, Final

from qkexport.errors import UsageError
from qkexport.progress import log_share

_LOG: Final = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class Cell:
    """One engine of a matrix."""

    model: Path
    target: str
    output: Path


@dataclasses.dataclass(frozen=True)
class CellResult:
    """How one engine came out.

    Attributes:
        cell: Which one.
        passed: The engine was built and checked.
        seconds: Time of the whole process.
        document: What the build printed as JSON; None when its process died.
        error: Why there is no engine; None when there is one.
    """

    cell: Cell
    passed: bool
    seconds: float
    document: dict[str, Any] | None
    error: str | None

    @property
    def cached(self) -> bool:
        return bool(self.document and self.document.get("cached"))

    def to_document(self) -> dict[str, Any]:
        """The result as JSON."""
        return {
            "model": str(self.cell.model),
            "target": self.cell.target,
            "output": str(self.cell.output) if self.passed else None,
            "passed": self.passed,
            "cached": self.cached,
            "seconds": self.seconds,
            "error": self.error,
        }


@dataclasses.dataclass(frozen=True)
class MatrixResult:
    """All cells of a matrix, in the order of models, then targets."""

    cells: tuple[CellResult, ...]

    def __bool__(self) -> bool:
        return all(cell.passed for cell in self.cells)

    def to_document(self) -> dict[str, Any]:
        """The result as JSON."""
        passed = sum(cell.passed for cell in self.cells)
        return {
            "passed": bool(self),
            "cells": [cell.to_document() for cell in self.cells],
            "built": passed,
            "failed": len(self.cells) - passed,
        }


def matrix_cells(models: Sequence[Path], targets: Sequence[str], folder: Path) -> tuple[Cell, ...]:
    """One cell for each model and target.

    Raises:
        UsageError: Two models would have the same engine.
    """
    names = [model.stem for model in models]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        message = f"Models of a matrix must have different names, got {', '.join(twice)} twice."
        raise UsageError(message)
    return tuple(
        Cell(model, target, folder / f"{model.stem}.{target}.engine")
        for model in models
        for target in targets
    )


def build_matrix(
    cells: Sequence[Cell], arguments: Sequence[str], *, cache: Path, jobs: int | None = None
) -> MatrixResult:
    """Builds all cells, several at a time.

    Args:
        cells: What to build.
        arguments: Further arguments of `qkexport build`, the same for each cell.
        cache: Folder of engines that need not be built again.
        jobs: How many processes at a time; None is one for each processor.
    """
    workers = _Workers([*arguments, "--cache", str(cache)])
    done: dict[Cell, CellResult] = {}
    with ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        futures = [pool.submit(workers.run, cell) for cell in cells]
        try:
            for future in as_completed(futures):
                result = future.result()
                done[result.cell] = result
                _tell(result, len(done), len(cells))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            workers.stop()
            raise
    return MatrixResult(tuple(done[cell] for cell in cells))


class _Workers:
    """The processes that are running."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._running: set[subprocess.Popen[str]] = set()
        self._stopped = threading.Event()

    def run(self, cell: Cell) -> CellResult:
        command = [sys.executable, "-m", "qkexport", "build", str(cell.model)]
        command += ["-o", str(cell.output), "--target", cell.target, "--json", *self._arguments]
        start = time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            self._running.add(process)
            if self._stopped.is_set():
                process.terminate()
            output, log = process.communicate()
            self._running.discard(process)
        return _result(cell, process.returncode, output, log, time.perf_counter() - start)

    def stop(self) -> None:
        """Ends what is running; what has not started yet ends at once."""
        self._stopped.set()
        for process in list(self._running):
            process.terminate()


def _result(cell: Cell, code: int, output: str, log: str, seconds: float) -> CellResult:
    try:
        document = json.loads(output)
    except ValueError:
        document = None
    passed = code == 0 and document is not None
    error = None if passed else _reason(code, document, log)
    return CellResult(cell, passed, seconds, document, error)


def _reason(code: int, document: dict[str, Any] | None, log: str) -> str:
    if code < 0:
        last = log.strip().splitlines()[-1:] or ["no message"]
        return f"the process was ended by {signal.Signals(-code).name}: {last[0]}"
    if document is not None and "error" in document:
        error = document["error"]
        return "\n".join(error[part] for part in ("message", "note", "hint") if error.get(part))
    if document is not None:
        failed = [check["name"] for check in document["checks"] if check["passed"] is False]
        return f"checks failed: {', '.join(failed)}"
    return log.strip()[-500:] or f"exit code {code}"


def _tell(result: CellResult, place: int, total: int) -> None:
    word = "FAILED" if not result.passed else "in the cache" if result.cached else "BUILT"
    name = f"{result.cell.model.name} for {result.cell.target}"
    share = place / total
    log_share(_LOG, share, "%d/%d %s %s in %.1f s", place, total, name, word, result.seconds)
