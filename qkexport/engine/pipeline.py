"""`build`: read, lower, compile, check, write."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qkexport.engine.checks import check_engine
from qkexport.engine.choose import AUTO
from qkexport.engine.compile import Compiled, Job, compile_engine
from qkexport.engine.options import AttentionChoice, BuildOptions
from qkexport.engine.plan import Plan, plan_build
from qkexport.engine.prepare import Prepared, external_files, prepare, read_model
from qkexport.engine.profiles import complete_profiles
from qkexport.engine.provenance import Provenance, describe
from qkexport.engine.result import BuildResult
from qkexport.errors import UsageError
from qkexport.files import write_whole
from qkexport.manifest import manifest_path, manifest_text

if TYPE_CHECKING:
    from qkexport.engine.progress import Progress

_ENGINE_SUFFIXES: Final = (".engine", ".plan", ".trt")


def build(
    model: str | Path,
    output: str | Path,
    *,
    runtime: str = AUTO,
    attention: str = AttentionChoice.AUTO,
    options: BuildOptions | None = None,
    progress: Progress | None = None,
) -> BuildResult:
    """Builds a TensorRT engine from an ONNX model, with a manifest beside it.

    Both files appear whole or not at all: an older engine survives every failure.

    Args:
        model: An .onnx file in any form; QKNormAttention nodes are lowered for the runtime.
        output: The engine; the manifest is `output` with `.json` appended.
        runtime: `auto`, `tensorrt` or `tensorrt-rtx`.
        attention: `auto`, `plugin` or `native`.
        options: Profiles, targets and TensorRT's own options.
        progress: Called with a share of 0 to 1 and the name of TensorRT's phase.

    Returns:
        What was built and looked at; true if every check passed and `output` was written.

    Raises:
        UsageError: An option is wrong or does not fit the model.
        LoadError: The model cannot be read.
        UnsupportedModelError: The model holds what TensorRT would ignore or die of.
        BuildError: TensorRT refuses the model or an option.
        BackendUnavailableError: The runtime, GPU or plugin library is not here.
        KeyboardInterrupt: The user stopped the build.
    """
    source, target = Path(model), Path(output)
    _check_output(target)
    plan = plan_build(runtime, attention, options or BuildOptions())
    clock = Clock()
    with tempfile.TemporaryDirectory(prefix="qkexport-build-") as folder:
        prepared, provenance = _prepare(source, plan, Path(folder), clock)
        job = make_job(plan, prepared)
        with clock.stage("compile"):
            compiled = compile_engine(plan.bindings, job, progress or _unwatched)
    with clock.stage("write"):
        return _finish(plan, prepared, job, compiled, provenance, target, clock)


def make_job(plan: Plan, prepared: Prepared) -> Job:
    """The engine to be built, its profiles complete."""
    profiles = complete_profiles(prepared.domain, plan.options.profiles)
    plugin = plan.plugin if prepared.attention is AttentionChoice.PLUGIN else None
    options = dataclasses.replace(plan.options, profiles=profiles)
    return Job(plan.flavour, prepared.path, options, plugin)


def _prepare(source: Path, plan: Plan, folder: Path, clock: Clock) -> tuple[Prepared, Provenance]:
    """Returns no reference to the graph: beside TensorRT's copy it would double the memory."""
    with clock.stage("read"):
        model = read_model(source)
        provenance = Provenance.start(source, external_files(model))
    with clock.stage("lower"):
        return prepare(model, source, plan.flavour, plan.attention, folder), provenance


def _finish(
    plan: Plan,
    prepared: Prepared,
    job: Job,
    compiled: Compiled,
    provenance: Provenance,
    target: Path,
    clock: Clock,
) -> BuildResult:
    manifest = describe(plan, prepared, job, compiled, provenance, target.name)
    checks = check_engine(compiled, job)
    passed = all(check.passed is not False for check in checks)
    if passed:
        write_whole(target, [memoryview(compiled.plan)])
        write_whole(manifest_path(target), [manifest_text(manifest).encode()])
    return BuildResult(
        output=target if passed else None,
        manifest=manifest,
        runtime_reason=plan.runtime_reason,
        attention_reason=plan.attention_reason if prepared.num_attentions else "",
        num_layers=compiled.num_layers,
        checks=checks,
        seconds=clock.seconds,
        engine_bytes=memoryview(compiled.plan).nbytes,
    )


def _check_output(target: Path) -> None:
    if target.suffix not in _ENGINE_SUFFIXES:
        message = f"Output must be named like an engine, got {target.name!r}."
        raise UsageError(message, note=f"accepted endings: {', '.join(_ENGINE_SUFFIXES)}.")


def _unwatched(share: float, phase: str) -> None:
    """Progress that nobody watches."""


class Clock:
    """Seconds of each stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start
