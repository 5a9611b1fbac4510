"""What is looked at in a finished engine before it is handed over."""

from __future__ import annotations

from qkexport.engine.bindings import Flavour
from qkexport.engine.compile import Compiled, Job
from qkexport.engine.header import HEADER_BYTES, parse_header
from qkexport.engine.result import Check


def check_engine(compiled: Compiled, job: Job) -> tuple[Check, ...]:
    """Looks at an engine in memory."""
    return (
        Check("layers", compiled.num_layers > 0, f"{compiled.num_layers} layers were built"),
        Check("inputs", True, "TensorRT uses every input and drops nothing it warned of"),
        _check_header(compiled, job),
    )


def _check_header(compiled: Compiled, job: Job) -> Check:
    name = "header"
    if job.flavour is not Flavour.TENSORRT_RTX:
        return Check(name, None, "the full TensorRT's engines are opaque")
    header = parse_header(bytes(memoryview(compiled.plan)[:HEADER_BYTES]))
    if header is None:
        return Check(name, None, "the engine's header has an unknown layout")
    size = memoryview(compiled.plan).nbytes
    passed = header.targets == job.options.targets and header.size == size
    detail = f"the engine is {header.size} bytes for {', '.join(header.targets)}"
    return Check(name, passed, detail)
