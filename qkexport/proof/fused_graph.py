"""Any source as a graph whose attentions are QKNormAttention nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qkexport.infer_types import complete_types
from qkexport.load import OnnxSource, TorchSource
from qkexport.match import find_attention
from qkexport.rewrite import fuse_attention
from qkexport.trace import trace

if TYPE_CHECKING:
    import onnx_ir as ir

    from qkexport.load import Source

_OPSET = 24


def fused_graph(source: Source) -> ir.Model:
    """The model of a source, traced if need be, its attentions fused where that is proven.

    An ONNX model is copied, and its functions for QKNormAttention are dropped: the nodes are what
    is evaluated.

    Raises:
        UnsupportedModelError: torch cannot export the model.
    """
    if isinstance(source, TorchSource):
        model = trace(source, opset=_OPSET).model
    else:
        assert isinstance(source, OnnxSource)
        model = source.model.clone()
    complete_types(model)
    fuse_attention(model, find_attention(model))
    return model
