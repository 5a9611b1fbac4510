"""What an .onnx file holds that decides who can run it."""

from __future__ import annotations

import json
from pathlib import Path

from qkexport.manifest import manifest_path
from qkexport.onnx_outline import load_outline
from qkexport.run.open import ENGINE_BACKENDS
from qkexport.run.ort_runner import CUSTOM, STOCK
from qkexport.spec import OP_DOMAIN, OP_TYPE


def default_backends(path: Path) -> tuple[str, ...]:
    """Who runs a file unless the user says otherwise.

    An .onnx file runs on ONNX Runtime as it can: stock, with our library, or both. The weights are
    not read. An engine runs where its manifest says.
    """
    if path.suffix != ".onnx":
        return _engine_backend(path)
    try:
        model = load_outline(path)
    except Exception:
        return (STOCK,)  # whoever opens it next says what is wrong with it
    nodes = [node for node in model.graph.node if node.domain == OP_DOMAIN]
    if not any(node.op_type == OP_TYPE for node in nodes):
        return (STOCK,)
    bodies = {(function.domain, function.name, function.overload) for function in model.functions}
    if all((node.domain, node.op_type, node.overload) in bodies for node in nodes):
        return (STOCK, CUSTOM)
    return (CUSTOM,)


def _engine_backend(path: Path) -> tuple[str, ...]:
    try:
        runtime = json.loads(manifest_path(path).read_text(encoding="utf-8"))["runtime"]
    except (OSError, ValueError, KeyError, TypeError):
        return ENGINE_BACKENDS[:1]  # whoever opens it next says what is wrong with it
    return (str(runtime),)
