"""From a raw projection to what attention reads: heads split, normalized, rotated; all BNSD."""

from __future__ import annotations

import onnx_ir as ir

from qkexport.body.norm import Layout, normalize
from qkexport.body.operands import Operands
from qkexport.body.rotary import rotate, rotation
from qkexport.signature import DType
from qkexport.spec import NormAxis, Rotary


def project_query(operands: Operands) -> ir.Value:
    """float32 [B,H,Sq,D], normalized and rotated."""
    return _project(operands, "query", "q", operands.signature.spec.num_heads, "")


def project_key(operands: Operands) -> ir.Value:
    """float32 [B,Hkv,Skv,D], normalized and rotated unless `normalize_key` is 0."""
    spec = operands.signature.spec
    if spec.normalize_key:
        prefix = "key_" if operands.has("key_cos_cache") else ""
        return _project(operands, "key", "k", spec.num_kv_heads, prefix)
    key = _split_heads(operands, operands.values["key"], spec.num_kv_heads, operands.head_dim)
    return operands.tape.cast(key, operands.signature.dtype, DType.FLOAT32)


def project_value(operands: Operands) -> ir.Value:
    """T [B,Hkv,Skv,Dv]."""
    num_heads = operands.signature.spec.num_kv_heads
    return _split_heads(operands, operands.values["value"], num_heads, operands.head_dim_v)


def merge_heads(operands: Operands, output: ir.Value) -> ir.Value:
    """From [B,H,Sq,Dv] to the layout of query."""
    if operands.signature.rank == 4:
        return output
    width = operands.signature.spec.num_heads * operands.head_dim_v
    return operands.tape.reshape(operands.tape.transpose(output, 0, 2, 1, 3), 0, 0, width)


def _project(operands: Operands, name: str, prefix: str, num_heads: int, caches: str) -> ir.Value:
    spec, tape = operands.signature.spec, operands.tape
    x = operands.as_float(name)
    if spec.rotary is Rotary.BEFORE_NORM:
        x = _split_heads(operands, x, num_heads, operands.head_dim)
        return normalize(
            operands, prefix, rotate(operands, x, rotation(operands, caches)), Layout.BNSD
        )
    if operands.signature.rank == 4:
        x = normalize(operands, prefix, x, Layout.BNSD)
    elif spec.norm_axis is NormAxis.HIDDEN:
        x = normalize(operands, prefix, x, Layout.BSD)
        x = _split_heads(operands, x, num_heads, operands.head_dim)
    else:
        x = tape.reshape(x, 0, 0, num_heads, operands.head_dim)
        x = tape.transpose(normalize(operands, prefix, x, Layout.BSND), 0, 2, 1, 3)
    if spec.rotary is Rotary.NONE:
        return x
    return rotate(operands, x, rotation(operands, caches))


def _split_heads(operands: Operands, x: ir.Value, num_heads: int, head_dim: int) -> ir.Value:
    if operands.signature.rank == 4:
        return x
    tape = operands.tape
    return tape.transpose(tape.reshape(x, 0, 0, num_heads, head_dim), 0, 2, 1, 3)
