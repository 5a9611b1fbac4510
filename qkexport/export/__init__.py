"""The three forms of a model with QKNormAttention nodes, and saving it safely."""

from qkexport.export.forms import Form, to_form
from qkexport.export.node import node_signature
from qkexport.export.save import save_model
from qkexport.export.tensorrt_provider import for_tensorrt_provider

__all__ = ["Form", "for_tensorrt_provider", "node_signature", "save_model", "to_form"]
