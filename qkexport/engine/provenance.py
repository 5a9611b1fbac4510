"""Where an engine comes from, as its manifest says it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from qkexport._version import __version__
from qkexport.engine.compile import Compiled, Job, TensorDescription
from qkexport.engine.plan import Plan
from qkexport.engine.prepare import Prepared
from qkexport.files import sha256_of
from qkexport.manifest import FileRecord, Manifest, ParityEvidence, TensorRecord

_FLOATS = ("float32", "float16", "bfloat16", "fp8")


@dataclasses.dataclass(frozen=True)
class Provenance:
    """The model's digest, computed while TensorRT compiles: hashing holds no lock.

    Attributes:
        source: The model.
        digest: Over the file and its external data.
    """

    source: Path
    digest: Future[str]

    @classmethod
    def start(cls, source: Path, files: Sequence[Path]) -> Provenance:
        """Starts hashing a model and the files that hold its weights."""
        pool = ThreadPoolExecutor(1, thread_name_prefix="qkexport-digest")
        digest = pool.submit(sha256_of, *files)
        pool.shutdown(wait=False)
        return cls(source, digest)


def describe(
    plan: Plan,
    prepared: Prepared,
    job: Job,
    compiled: Compiled,
    provenance: Provenance,
    engine: FileRecord,
) -> Manifest:
    """The manifest of an engine that has just been compiled."""
    tensors = (*compiled.inputs, *compiled.outputs)
    return Manifest(
        engine=engine,
        onnx=FileRecord(provenance.source.name, provenance.digest.result()),
        plugin=None if job.plugin is None else FileRecord(str(job.plugin), sha256_of(job.plugin)),
        op_version=prepared.op_version,
        attention=prepared.attention,
        runtime=plan.flavour,
        version=plan.bindings.__version__,
        targets=job.options.targets,
        profiles=tuple(
            {name: (shape.minimum, shape.optimum, shape.maximum) for name, shape in p.items()}
            for p in job.options.profiles
        ),
        precision=tuple(sorted({tensor.dtype for tensor in tensors} & set(_FLOATS))),
        inputs=_records(compiled.inputs),
        outputs=_records(compiled.outputs),
        num_layers=compiled.num_layers,
        options=json.loads(json.dumps(job.options.to_document())),
        parity=ParityEvidence("BUILT", "the engine was not run"),
        created_by=f"qkexport {__version__}",
    )


def _records(tensors: Sequence[TensorDescription]) -> tuple[TensorRecord, ...]:
    return tuple(TensorRecord(item.name, item.dtype, item.shape) for item in tensors)
