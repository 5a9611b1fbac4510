"""Completes the types and shapes of a graph's values where its exporter left them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx_ir as ir


def complete_types(model: ir.Model) -> None:
    """Infers missing types and shapes of the main graph in place; known ones stay as they are.

    Args:
        model: Any model; operators that inference does not know leave their results unknown.
    """
    unknown = [value for node in model.graph for value in node.outputs if _is_unknown(value)]
    if not unknown:
        return
    import onnx_ir as ir
    from onnx_ir.passes.common import ShapeInferencePass

    from qkexport.trace import exporter_noise_logged

    twin = model.clone()
    with exporter_noise_logged():
        ShapeInferencePass(check_type=False, strict_mode=False)(twin)
    inferred = ir.convenience.create_value_mapping(twin.graph)
    for value in unknown:
        found = inferred.get(value.name or "")
        if found is not None:
            value.type = value.type or found.type
            value.shape = value.shape or found.shape


def _is_unknown(value: ir.Value) -> bool:
    return bool(value.name) and (value.type is None or value.shape is None)
