"""What is looked at in a finished engine before it is handed over."""

from __future__ import annotations

from qkexport.engine.bindings import Bindings, Flavour
from qkexport.engine.compile import Compiled, Job
from qkexport.engine.header import read_header
from qkexport.engine.layers import inspect_layers
from qkexport.engine.result import Check


def check_engine(
    bindings: Bindings, compiled: Compiled, job: Job, num_attentions: int
) -> tuple[Check, ...]:
    """Looks at an engine before it gets its name.

    Args:
        bindings: The flavour that built it.
        compiled: The engine.
        job: What was asked for.
        num_attentions: QKNormAttention nodes of the model.
    """
    num_plugins = num_attentions if job.plugin is not None else 0
    return (
        Check("layers", compiled.num_layers > 0, f"{compiled.num_layers} layers were built"),
        Check("inputs", True, "TensorRT uses every input and drops nothing it warned of"),
        _check_header(compiled, job),
        inspect_layers(bindings, compiled.file.path, num_plugins),
    )


def _check_header(compiled: Compiled, job: Job) -> Check:
    name = "header"
    if job.flavour is not Flavour.TENSORRT_RTX:
        return Check(name, None, "the full TensorRT's engines are opaque")
    header = read_header(compiled.file.path)
    if header is None:
        return Check(name, None, "the engine's header has an unknown layout")
    passed = header.targets == job.options.targets and header.size == compiled.file.size
    detail = f"the engine is {header.size} bytes for {', '.join(header.targets)}"
    return Check(name, passed, detail)
