"""Which ONNX opsets a model may have, and the change from one to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qkexport.errors import UnsupportedModelError

if TYPE_CHECKING:
    import onnx_ir as ir

    from qkexport.trace import Trace

DEFAULT_OPSET: Final = 24
OPSETS: Final = range(17, 26)


def at_opset(trace: Trace, opset: int | None) -> ir.Model:
    """The model of a trace at another opset, changed in place.

    Args:
        trace: A model whose attentions are fused; function bodies are dropped if it changes.
        opset: None keeps its own.

    Raises:
        UnsupportedModelError: An operator has no form at that opset.
    """
    from qkexport.export import to_form
    from qkexport.trace import exporter_noise_logged

    model = trace.model
    own = model.opset_imports[""]
    if opset is None or own == opset:
        return model
    from onnxscript.version_converter import convert_version

    model = to_form(model, "fused")
    cause: Exception | None = None
    try:
        with exporter_noise_logged():
            convert_version(model, opset, fallback=False)
    except Exception as error:
        cause = error
    if cause is not None or model.opset_imports[""] != opset:
        message = f"Model {trace.source.name} must be convertible to opset {opset}, got {own}."
        raise UnsupportedModelError(message, hint="leave out --opset to keep its own.") from cause
    return model
