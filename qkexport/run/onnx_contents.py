"""What an .onnx file holds that decides who can run it."""

from __future__ import annotations

from pathlib import Path

from qkexport.run.open import ENGINE_BACKENDS
from qkexport.run.ort_runner import CUSTOM, STOCK
from qkexport.spec import OP_DOMAIN, OP_TYPE


def default_backends(path: Path) -> tuple[str, ...]:
    """Who runs a file unless the user says otherwise.

    An .onnx file runs on ONNX Runtime as it can: stock, with our library, or both. The weights are
    not read.
    """
    import onnx

    if path.suffix != ".onnx":
        return ENGINE_BACKENDS

    try:
        model = onnx.load(path, load_external_data=False)
    except Exception:
        return (STOCK,)  # whoever opens it next says what is wrong with it
    nodes = [node for node in model.graph.node if node.domain == OP_DOMAIN]
    if not any(node.op_type == OP_TYPE for node in nodes):
        return (STOCK,)
    bodies = {(function.domain, function.name, function.overload) for function in model.functions}
    if all((node.domain, node.op_type, node.overload) in bodies for node in nodes):
        return (STOCK, CUSTOM)
    return (CUSTOM,)
