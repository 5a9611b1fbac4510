"""`bench`: runs files on backends, one after the other, and puts their numbers side by side."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from qkexport.benchmark.process import ask
from qkexport.benchmark.results import BenchResult, ContenderResult, Measurement
from qkexport.engine.inspection import is_engine
from qkexport.errors import BackendUnavailableError, QkexportError, UsageError
from qkexport.factory import is_factory_name
from qkexport.input_options import InputSpec
from qkexport.missing_file import require_file
from qkexport.names import suggest
from qkexport.progress import log_share

__all__ = ["BenchResult", "bench"]

_LOG: Final = logging.getLogger(__name__)

BACKENDS: Final = ("torch", "ort", "ort-stock", "tensorrt", "tensorrt-rtx")
_EMULATED: Final = "plugin"


def bench(
    sources: Sequence[str | Path],
    *,
    backends: Sequence[str] = (),
    require: Sequence[str] = (),
    input_specs: Sequence[str] = (),
    inputs: str | Path | None = None,
    runs: int = 50,
    warm_up: int = 5,
    threads: int | None = None,
    seed: int = 0,
    allow_pickle: bool = False,
) -> BenchResult:
    """Measures latency, first run and memory of each file on each backend that runs it.

    Every contender has a process of its own, one at a time, and all run on the same inputs: those
    of the first file. What they compute is not compared; that is `parity`'s business.

    Args:
        sources: `.onnx`, engines with their manifests, `.pt2`, or what else `convert` takes.
        backends: Who runs them; empty: each file as it can be run.
        require: Backends that must be here; they are also run.
        input_specs: Shapes to draw inputs at, as `ids=1,512:int64`.
        inputs: File of inputs by name, .npz or .pt.
        runs: Runs that are timed.
        warm_up: Runs after the first that are not.
        threads: Threads of ONNX Runtime and PyTorch; None: PyTorch's default.
        seed: Of the inputs that are drawn.
        allow_pickle: Unpickle sources; this can run any code.

    Returns:
        The numbers of each contender; true if all whose backend is here ran, and one did.

    Raises:
        UsageError: An option is wrong, or a given input does not fit.
        LoadError: The first file cannot be read.
        BackendUnavailableError: No backend of any file is here.

    Example:
        >>> import torch, qkexport
        >>> from qkexport.nn import QKNormAttention
        >>> source = QKNormAttention(64, num_heads=4), (torch.randn(2, 8, 64),)
        >>> _ = qkexport.convert(source, "attention.onnx", verify=False)
        >>> result = qkexport.bench(["attention.onnx"], backends=["ort-stock"], runs=3)
        >>> for contender in result.contenders:
        ...     print(contender.backend, contender.verdict, contender.measurement.latency.runs)
        ort-stock RAN 3
    """
    _check_options(runs, warm_up, threads, backends, require)
    for text in input_specs:
        InputSpec.parse(text)
    if inputs is not None:
        require_file("--inputs file", Path(inputs))
    names = [str(source) for source in sources]
    pairs = _contenders(names, tuple(dict.fromkeys((*backends, *require))))
    with tempfile.TemporaryDirectory(prefix="qkexport-bench-") as folder:
        request: dict[str, Any] = {
            "inputs": str(Path(folder) / "inputs.pt"),
            "threads": threads or os.cpu_count() or 1,
            "seed": seed,
            "allow_pickle": allow_pickle,
        }
        given = None if inputs is None else str(inputs)
        draw = {"task": "draw", "source": names[0], "others": names[1:], "given": given}
        _LOG.info("inputs of %s", names[0])
        shapes = ask({**request, **draw, "specs": list(input_specs)})
        request |= {"task": "run", "runs": runs, "warm_up": warm_up}
        results = []
        for index, pair in enumerate(pairs):
            log_share(_LOG, index / len(pairs), "%s on %s", *pair)
            results.append(_measured(request, *pair))
    if all(result.skipped for result in results):
        raise BackendUnavailableError("A backend must be here, got none.", note=results[0].reason)
    return BenchResult(
        contenders=tuple(results),
        shapes={name: tuple(shape) for name, shape in shapes.items()},
        absent=tuple(sorted({item.backend for item in results if item.skipped} & set(require))),
        threads=request["threads"],
        environment=_environment(),
    )


def _check_options(
    runs: int,
    warm_up: int,
    threads: int | None,
    backends: Sequence[str],
    require: Sequence[str],
) -> None:
    for name, value, least in (("runs", runs, 1), ("warm_up", warm_up, 0), ("threads", threads, 1)):
        if value is not None and value < least:
            raise UsageError(f"Option {name} must be at least {least}, got {value}.")
    for backend in (*backends, *require):
        if backend == _EMULATED:
            message = f"Backend {_EMULATED} must not be timed, got it in a benchmark."
            note = "it runs the CUDA kernels in an emulation, whose time says nothing about a GPU."
            raise UsageError(message, note=note)
        if backend not in BACKENDS:
            message = f"Backend must be a known one, got {backend!r}."
            note = f"accepted: {', '.join(BACKENDS)}."
            raise UsageError(message, note=note, hint=suggest(backend, BACKENDS))


def _contenders(sources: Sequence[str], wanted: Sequence[str]) -> list[tuple[str, str]]:
    """Each file with each backend that is wanted and can run it."""
    if not sources:
        raise UsageError("A benchmark needs a file, got none.", hint="qkexport bench FILE...")
    pairs: list[tuple[str, str]] = []
    for source in sources:
        if not is_factory_name(source):
            require_file("File", Path(source))
        own = [backend for backend in _runnable(source) if backend in wanted]
        if wanted and not own:
            message = f"Backends must be able to run {source}, got {', '.join(wanted)}."
            raise UsageError(message, note=f"it runs on {', '.join(_runnable(source))}.")
        pairs += [(source, backend) for backend in own or _default(source)]
    idle = set(wanted) - {backend for _, backend in pairs}
    if idle:
        message = f"Backends must have a file to run, got none for {', '.join(sorted(idle))}."
        raise UsageError(message, note=f"the files are {', '.join(sources)}.")
    return list(dict.fromkeys(pairs))


def _runnable(source: str) -> tuple[str, ...]:
    path = Path(source)
    if is_engine(path):
        return ("tensorrt", "tensorrt-rtx")
    return ("ort-stock", "ort") if path.suffix == ".onnx" else ("torch",)


def _default(source: str) -> tuple[str, ...]:
    if _runnable(source) == ("torch",):
        return ("torch",)
    from qkexport.run.onnx_contents import default_backends

    return default_backends(Path(source))


def _measured(request: dict[str, Any], source: str, backend: str) -> ContenderResult:
    try:
        answer = ask({**request, "source": source, "backend": backend})
    except BackendUnavailableError as error:
        return ContenderResult(source, backend, reason=str(error), skipped=True)
    except QkexportError as error:
        return ContenderResult(source, backend, reason=str(error))
    return ContenderResult(source, backend, Measurement.from_dict(answer))


def _environment() -> dict[str, str]:
    from qkexport.proof.environment import environment

    return environment()
