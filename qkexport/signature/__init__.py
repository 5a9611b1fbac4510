"""The tensors of one QKNormAttention node: which are present, their types and shapes.

A signature joins an `AttentionSpec` with the inputs a node really passes. Whatever the contract
refuses about types and shapes is refused here, once, for every consumer: the exporter (dimensions
may be unknown) and the reference (all are numbers).

Symbols: B batch, Sq query length, Skv new keys, P past, T total, H / Hkv heads, D / Dv head dims,
R rotary dim, W cache width, G segments.
"""

from qkexport.signature.attention import AttentionSignature, Dims
from qkexport.signature.types import (
    INPUT_NAMES,
    OUTPUT_NAMES,
    REQUIRED_INPUTS,
    TENSOR_DTYPES,
    Dim,
    DType,
    TensorType,
)

__all__ = [
    "INPUT_NAMES",
    "OUTPUT_NAMES",
    "REQUIRED_INPUTS",
    "TENSOR_DTYPES",
    "AttentionSignature",
    "DType",
    "Dim",
    "Dims",
    "TensorType",
]
