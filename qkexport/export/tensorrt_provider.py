"""A model as ONNX Runtime's TensorRT provider takes plugins."""

from __future__ import annotations

from typing import Final

import onnx_ir as ir

from qkexport.body import Runtime
from qkexport.export.forms import Form, to_form
from qkexport.export.node import attention_nodes
from qkexport.spec import OP_DOMAIN

# Where the provider looks for plugins of TensorRT's registry, whatever their namespace.
PLUGIN_DOMAIN: Final = "trt.plugins"


def for_tensorrt_provider(model: ir.Model) -> ir.Model:
    """Fused attentions in the domain of plugins, for ONNX Runtime's TensorRT provider.

    The provider must know the plugin when the session is made: give it
    `libqkexport_trt_register.so` as `trt_extra_plugin_lib_paths`. Only that provider runs the
    result: neither ONNX Runtime's others nor qkexport read it.

    Args:
        model: In the portable or fused form; stays as it is.

    Returns:
        A new model that shares the weights of `model`.

    Raises:
        InvalidSpecError: A node breaks the operator's contract.
    """
    fused = to_form(model, Form.FUSED, runtime=Runtime.TENSORRT)
    scopes: list[ir.Graph | ir.Function] = [fused.graph, *fused.functions.values()]
    for scope in scopes:
        for node in list(attention_nodes(scope)):
            node.domain = PLUGIN_DOMAIN
        if scope.opset_imports.pop(OP_DOMAIN, None) is not None:
            scope.opset_imports[PLUGIN_DOMAIN] = 1
    return fused
