"""Attention of a parsed network, allowed to run where TensorRT has no fused kernel for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from qkexport.engine.bindings import Bindings

if TYPE_CHECKING:
    import tensorrt as trt


def let_attention_decompose(bindings: Bindings, network: trt.INetworkDefinition) -> int:
    """Allows TensorRT to compute attention by its parts.

    Its fused kernels cover no float32, few sizes, and no query of fixed length 1; without leave to
    decompose the build fails there. Where there is a fused kernel, the engine stays the same.

    Args:
        bindings: The flavour.
        network: A parsed network.

    Returns:
        How many attentions the network has.
    """
    layers = (network.get_layer(index) for index in range(network.num_layers))
    inputs = [layer for layer in layers if layer.type == bindings.LayerType.ATTENTION_INPUT]
    for layer in inputs:
        # TensorRT's Python API hands out every layer as ILayer and wants it cast like this.
        layer.__class__ = bindings.IAttentionInputLayer  # type: ignore[assignment,unused-ignore]
        cast("trt.IAttentionInputLayer", layer).attention.decomposable = True
    return len(inputs)
