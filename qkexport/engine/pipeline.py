"""`build`: read, lower, compile, check, write."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from qkexport._version import __version__
from qkexport.engine.cache import EngineCache, cache_key
from qkexport.engine.checks import check_engine
from qkexport.engine.choose import AUTO
from qkexport.engine.compile import Compiled, Job, compile_engine
from qkexport.engine.evidence import keep_evidence
from qkexport.engine.fastest import keep_fastest, measure_engine
from qkexport.engine.options import AttentionChoice, BuildOptions
from qkexport.engine.output import check_engine_output
from qkexport.engine.plan import Plan, plan_build
from qkexport.engine.prepare import Prepared, files_of_model, prepare, read_model
from qkexport.engine.profiles import complete_profiles
from qkexport.engine.provenance import Provenance, describe
from qkexport.engine.result import BuildResult, Check
from qkexport.files import sha256_of, temporary_of
from qkexport.manifest import FileRecord, Manifest, write_manifest

if TYPE_CHECKING:
    from qkexport.engine.progress import Progress


def build(
    model: str | Path,
    output: str | Path,
    *,
    runtime: str = AUTO,
    attention: str = AttentionChoice.AUTO,
    options: BuildOptions | None = None,
    cache: str | Path | None = None,
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
        cache: Folder of engines that were built before; the same inputs are not built again.
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

    Example:
        >>> import torch, qkexport
        >>> from qkexport.nn import QKNormAttention
        >>> source = QKNormAttention(64, num_heads=4), (torch.randn(2, 8, 64),)
        >>> _ = qkexport.convert(source, "attention.onnx", verify=False)
        >>> options = qkexport.BuildOptions(targets=("sm_89",))
        >>> result = qkexport.build("attention.onnx", "attention.engine",
        ...                         runtime="tensorrt-rtx", options=options)
        >>> bool(result), result.manifest.targets
        (True, ('sm_89',))
    """
    check_engine_output(Path(output), Path(model))
    options = options or BuildOptions()
    plan = plan_build(runtime, attention, options)
    if plan.measured:

        def build_with(choice: AttentionChoice, path: Path) -> BuildResult:
            return build(
                model,
                path,
                runtime=plan.flavour,
                attention=choice,
                options=options,
                cache=cache,
                progress=progress,
            )

        return keep_fastest(build_with, measure_engine, Path(output))
    run = _Run(plan, Path(model), Path(output), EngineCache(Path(cache)) if cache else None)
    with tempfile.TemporaryDirectory(prefix="qkexport-build-") as folder:
        prepared = run.prepare(Path(folder))
        job = make_job(plan, prepared, run.source.name)
        key = run.key(job)
        known = run.fetch(key)
        if known is not None:
            return known
        with temporary_of(run.target) as path:
            with run.stage("compile"):
                compiled = compile_engine(plan.bindings, job, path, progress or _unwatched)
            return run.finish(prepared, job, compiled, key)


def make_job(plan: Plan, prepared: Prepared, name: str) -> Job:
    """The engine to be built, its profiles complete."""
    profiles = complete_profiles(prepared.domain, plan.options.profiles)
    plugin = plan.plugin if prepared.attention is AttentionChoice.PLUGIN else None
    options = dataclasses.replace(plan.options, profiles=profiles)
    return Job(plan.flavour, prepared.path, name, options, plugin)


class _Run:
    """One build on its way through the stages."""

    def __init__(self, plan: Plan, source: Path, target: Path, cache: EngineCache | None) -> None:
        self.plan, self.source, self.target, self.cache = plan, source, target, cache
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = time.perf_counter() - start

    def prepare(self, folder: Path) -> Prepared:
        """Keeps no reference to the graph: beside TensorRT's copy it would double the memory."""
        with self.stage("read"):
            model = read_model(self.source)
            self.provenance = Provenance.start(self.source, files_of_model(self.source, model))
        with self.stage("lower"):
            return prepare(model, self.source, self.plan.flavour, self.plan.attention, folder)

    def key(self, job: Job) -> str | None:
        if self.cache is None:
            return None
        return cache_key(
            {
                "onnx": self.provenance.digest.result(),
                "runtime": self.plan.flavour,
                "version": self.plan.bindings.__version__,
                "attention": self.plan.attention,
                "plugin": None if job.plugin is None else sha256_of(job.plugin),
                "options": job.options.to_document(),
                "profiles": [{n: str(s) for n, s in p.items()} for p in job.options.profiles],
                "created_by": __version__,
            }
        )

    def fetch(self, key: str | None) -> BuildResult | None:
        if self.cache is None or key is None:
            return None
        with self.stage("fetch"):
            manifest = self.cache.fetch(key, self.target)
        if manifest is None:
            return None
        check = Check("digest", True, "the engine in the cache is as it was built")
        size = self.target.stat().st_size
        return self._result(manifest, (check,), size, written=True, cached=True)

    def finish(
        self, prepared: Prepared, job: Job, compiled: Compiled, key: str | None
    ) -> BuildResult:
        with self.stage("check"):
            checks = check_engine(self.plan.bindings, compiled, job, prepared.num_attentions)
            passed = all(check.passed is not False for check in checks)
            record = FileRecord(self.target.name, compiled.file.sha256)
            manifest = describe(self.plan, prepared, job, compiled, self.provenance, record)
            manifest = keep_evidence(manifest, self.target)
            if passed:
                compiled.file.path.replace(self.target)
                write_manifest(self.target, manifest)
            if passed and self.cache is not None and key is not None:
                self.cache.store(key, self.target)
        return self._result(manifest, checks, compiled.file.size, written=passed, cached=False)

    def _result(
        self,
        manifest: Manifest,
        checks: tuple[Check, ...],
        size: int,
        *,
        written: bool,
        cached: bool,
    ) -> BuildResult:
        return BuildResult(
            output=self.target if written else None,
            manifest=manifest,
            runtime_reason=self.plan.runtime_reason,
            attention_reason=self.plan.attention_reason if manifest.op_version else "",
            checks=checks,
            seconds=self.seconds,
            engine_bytes=size,
            cached=cached,
        )


def _unwatched(share: float, phase: str) -> None:
    """Progress that nobody watches."""
