"""Measures one model on one backend, in the process it is called in."""

from __future__ import annotations

import gc
import resource
import tempfile
import time
from pathlib import Path
from typing import Final

import onnx_ir as ir
import torch
from torch import nn

from qkexport.benchmark.inputs import feeds
from qkexport.benchmark.results import Latency, Measurement
from qkexport.engine.bindings import Flavour, load_bindings
from qkexport.engine.device import find_gpu
from qkexport.load import TorchSource
from qkexport.proof.open import open_source
from qkexport.run import Runner, open_runner
from qkexport.run.cuda_runtime import free_device_memory
from qkexport.run.open import ENGINE_BACKENDS
from qkexport.run.ort_runner import CUSTOM, STOCK, OrtRunner, session_options
from qkexport.run.program import load_program
from qkexport.run.runner import Tensors
from qkexport.run.torch_runner import TORCH

_KIBIBYTE: Final = 1024
_STATUS: Final = Path("/proc/self/statm")
_WITH_COPIES: Final = "times include copies to and from the GPU"


def measure(
    source: str,
    backend: str,
    drawn: Tensors,
    *,
    runs: int,
    warm_up: int,
    allow_pickle: bool = False,
) -> Measurement:
    """Opens a model, runs it, and says what that took.

    Args:
        source: A path or factory name.
        backend: Who runs it.
        drawn: Inputs, by the names of the model they were drawn for.
        runs: How many runs are timed.
        warm_up: Runs before them that are not, besides the first.
        allow_pickle: Unpickle the source; this can run any code.

    Raises:
        QkexportError: The model does not open or run on this backend.
    """
    _warm_backend(backend)
    on_gpu = backend in ENGINE_BACKENDS
    free = free_device_memory() if on_gpu and find_gpu() is not None else None
    before = _resident_bytes()
    start = time.perf_counter()
    with _open(source, backend, drawn, allow_pickle) as runner:
        loaded = time.perf_counter()
        own = feeds(runner.inputs, drawn, source)
        began = time.perf_counter()
        runner.run(own)
        first = time.perf_counter() - began
        seconds = _time(runner, own, runs, warm_up)
        held = _resident_bytes() - before
        taken = free - free_device_memory() if free is not None else None
        notes = (*runner.notes, _WITH_COPIES) if on_gpu else runner.notes
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIBIBYTE - before
    memory = (max(0, held), max(0, peak))
    return Measurement(loaded - start, first, Latency.of(seconds), *memory, taken, notes)


def _open(source: str, backend: str, drawn: Tensors, allow_pickle: bool) -> Runner:
    if backend in (STOCK, CUSTOM):
        options = session_options(backend)
        options.enable_cpu_mem_arena = True  # ONNX Runtime's own default, as models are deployed
        return OrtRunner(Path(source), backend, options)
    if backend != TORCH:
        return open_runner(Path(source), backend)
    opened = open_source(source, drawn, (), (), allow_pickle)
    assert isinstance(opened, TorchSource)  # an .onnx file is not offered to PyTorch
    return open_runner(load_program(opened), TORCH)


def _time(runner: Runner, inputs: Tensors, runs: int, warm_up: int) -> list[float]:
    for _ in range(warm_up):
        runner.run(inputs)
    seconds = []
    gc.collect()
    gc.disable()  # a collection in the middle of a run would count as the model's
    try:
        for _ in range(runs):
            start = time.perf_counter()
            runner.run(inputs)
            seconds.append(time.perf_counter() - start)
    finally:
        gc.enable()
    return seconds


def _warm_backend(backend: str) -> None:
    """Lets a backend run next to nothing, so that its own size is not counted as the model's.

    Raises:
        BackendUnavailableError: The backend is not installed.
    """
    if backend in ENGINE_BACKENDS:
        load_bindings(Flavour(backend))
        return
    x = torch.zeros(1)
    if backend == TORCH:
        with open_runner(
            load_program(TorchSource("nothing", nn.Identity(), (x,))), TORCH
        ) as runner:
            runner.run({info.name: x for info in runner.inputs})
        return
    with tempfile.TemporaryDirectory(prefix="qkexport-bench-") as folder:
        path = Path(folder) / "nothing.onnx"
        value = ir.Value(name="x", shape=ir.Shape([1]), type=ir.TensorType(ir.DataType.FLOAT))
        node = ir.node("Abs", [value])
        graph = ir.Graph(
            [value], node.outputs, nodes=[node], opset_imports={"": 20}, name="nothing"
        )
        ir.save(ir.Model(graph, ir_version=10), path)
        with open_runner(path, backend) as runner:
            runner.run({"x": x})


def _resident_bytes() -> int:
    """Memory that the process holds now; its peak so far where the system does not say."""
    try:
        pages = int(_STATUS.read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIBIBYTE
    return pages * resource.getpagesize()
