"""From a prepared model to an engine in a file."""

from __future__ import annotations

import dataclasses
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qkexport.engine.attention_layers import let_attention_decompose
from qkexport.engine.bindings import Bindings, Flavour
from qkexport.engine.config import make_config
from qkexport.engine.diagnose import build_error
from qkexport.engine.logger import LOG, Messages, listening, shared_logger
from qkexport.engine.network import parse_network, refuse_dropped
from qkexport.engine.options import BuildOptions
from qkexport.engine.plugin_library import load_plugin_library
from qkexport.engine.progress import Cancellation, Progress, make_monitor
from qkexport.engine.stream import EngineFile, HashingWriter, Receiver, make_stream
from qkexport.engine.timing_cache import TimingCache

if TYPE_CHECKING:
    from collections.abc import Callable

    import tensorrt as trt


@dataclasses.dataclass(frozen=True)
class TensorDescription:
    """An input or output of the engine; unknown dimensions are -1."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Compiled:
    """An engine that TensorRT has built.

    Attributes:
        file: Where it is, with its digest.
        inputs: What it takes.
        outputs: What it returns.
        num_layers: Layers of the network it was built from.
    """

    file: EngineFile
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]
    num_layers: int


@dataclasses.dataclass(frozen=True)
class Job:
    """One engine to be built.

    Attributes:
        flavour: Which TensorRT.
        model: The file that TensorRT parses.
        name: Of the model that was given, for messages.
        options: Profiles complete, targets resolved.
        plugin: Library to load first.
    """

    flavour: Flavour
    model: Path
    name: str
    options: BuildOptions
    plugin: Path | None = None


def compile_engine(bindings: Bindings, job: Job, path: Path, progress: Progress) -> Compiled:
    """Builds an engine into a new file; Ctrl-C ends it.

    TensorRT works on a thread of its own, because a signal only reaches Python on the main
    thread, and only between two of its own instructions.

    Raises:
        BuildError: TensorRT refuses the model or drops part of it, or the disk is full.
        KeyboardInterrupt: The user stopped the build.
    """
    cancellation, finished = Cancellation(), threading.Event()
    outcome: list[Compiled | BaseException] = []

    def work() -> None:
        try:
            outcome.append(_compile(bindings, job, path, progress, cancellation))
        except BaseException as error:  # raised again on the caller's thread
            outcome.append(error)
        finally:
            finished.set()

    thread = threading.Thread(target=work, name="qkexport-build", daemon=True)
    thread.start()
    try:
        finished.wait()  # a join that is interrupted takes the thread for ended
    except KeyboardInterrupt:
        cancellation.request()
        _wait_for_the_next_step(finished)
        raise
    result = outcome[0]
    if isinstance(result, BaseException):
        raise result
    return result


def _wait_for_the_next_step(finished: threading.Event) -> None:
    """Waits until TensorRT stops; compiling a graph is one step and can take a while.

    The interpreter must not end before: TensorRT would call into it and abort the process. Who
    does not want to wait ends the process by a second Ctrl-C.
    """
    LOG.warning("stopping at TensorRT's next step; Ctrl-C again ends the process at once")
    handler = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        finished.wait()
    finally:
        signal.signal(signal.SIGINT, handler)


def _compile(
    bindings: Bindings, job: Job, path: Path, progress: Progress, cancellation: Cancellation
) -> Compiled:
    monitor = make_monitor(bindings, progress, cancellation)
    with listening() as messages, HashingWriter(path) as writer:
        return _build(bindings, job, messages, monitor, Receiver(writer))


def _build(
    bindings: Bindings,
    job: Job,
    messages: Messages,
    monitor: trt.IProgressMonitor,
    receiver: Receiver,
) -> Compiled:
    logger = shared_logger(bindings)
    builder = bindings.Builder(logger)
    if job.plugin is not None:
        load_plugin_library(bindings, builder, job.plugin)
    network = parse_network(bindings, builder, logger, job.model, job.name, messages)
    let_attention_decompose(bindings, network)
    config = make_config(bindings, job.flavour, builder, network, job.options)
    config.progress_monitor = monitor
    cache = TimingCache.load(job, bindings.__version__, config)
    stream = make_stream(bindings, receiver)
    built = builder.build_serialized_network_to_stream(network, config, stream)
    file = receiver.finish()
    if not built or file.size == 0:
        said = messages.lasting_errors or messages.errors
        raise build_error(job.name, f"must be built by {job.flavour}", said)
    refuse_dropped(job.name, messages)
    for text in messages.lasting_errors:
        LOG.warning("the build went on after an error: %s", text)
    cache.save(config)
    return Compiled(
        file,
        _describe(network.get_input, network.num_inputs),
        _describe(network.get_output, network.num_outputs),
        network.num_layers,
    )


def _describe(get: Callable[[int], trt.ITensor], count: int) -> tuple[TensorDescription, ...]:
    tensors = [get(index) for index in range(count)]
    return tuple(
        TensorDescription(tensor.name, dtype_name(tensor.dtype), sizes(tensor.shape))
        for tensor in tensors
    )


_DTYPES: Final = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16"}


def dtype_name(dtype: trt.DataType) -> str:
    """A TensorRT type as numpy and ONNX call it."""
    name = str(dtype.name)
    return _DTYPES.get(name, name.lower())


def sizes(shape: trt.Dims) -> tuple[int, ...]:
    """A shape of TensorRT as plain numbers; -1 where it may vary."""
    return tuple(shape[axis] for axis in range(len(shape)))
