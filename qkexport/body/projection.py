"""From a raw projection to what attention reads: heads split, normalized, rotated; all BNSD."""

from __future__ import annotations

import onnx_ir as ir

from qkexport.body.norm import Layout, normalize
from qkexport.body.operands import Operands
from qkexport.body.rotary import Rotation, rotate, rotation
from qkexport.signature import DType
from qkexport.spec import NormAxis, Rotary


def project_query_and_key(operands: Operands) -> tuple[ir.Value, ir.Value]:
    """float32 [B,H,Sq,D] and [B,Hkv,Skv,D], normalized and rotated.

    Keys are left as they are when `normalize_key` is 0.
    """
    spec = operands.signature.spec
    rotates = spec.rotary is not Rotary.NONE
    turn = rotation(operands, "") if rotates else None
    query = _project(operands, "query", "q", spec.num_heads, turn)
    if not spec.normalize_key:
        key = _split_heads(operands, operands.values["key"], spec.num_kv_heads, operands.head_dim)
        return query, operands.tape.cast(key, operands.signature.dtype, DType.FLOAT32)
    if operands.has("key_cos_cache"):
        turn = rotation(operands, "key_")
    return query, _project(operands, "key", "k", spec.num_kv_heads, turn)


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


def _project(
    operands: Operands, name: str, prefix: str, num_heads: int, turn: Rotation | None
) -> ir.Value:
    x = operands.as_float(name)
    if turn is not None and operands.signature.spec.rotary is Rotary.BEFORE_NORM:
        x = _split_heads(operands, x, num_heads, operands.head_dim)
        return normalize(operands, prefix, rotate(operands, x, turn), Layout.BNSD)
    x = _normalized_heads(operands, x, prefix, num_heads)
    return x if turn is None else rotate(operands, x, turn)


def _normalized_heads(operands: Operands, x: ir.Value, prefix: str, num_heads: int) -> ir.Value:
    """The norm in the layout that x comes in, where no transpose is needed; then BNSD."""
    tape = operands.tape
    if operands.signature.rank == 4:
        return normalize(operands, prefix, x, Layout.BNSD)
    if operands.signature.spec.norm_axis is NormAxis.HIDDEN:
        x = normalize(operands, prefix, x, Layout.BSD)
        return _split_heads(operands, x, num_heads, operands.head_dim)
    x = tape.reshape(x, 0, 0, num_heads, operands.head_dim)
    return tape.transpose(normalize(operands, prefix, x, Layout.BSND), 0, 2, 1, 3)


def _split_heads(operands: Operands, x: ir.Value, num_heads: int, head_dim: int) -> ir.Value:
    if operands.signature.rank == 4:
        return x
    tape = operands.tape
    return tape.transpose(tape.reshape(x, 0, 0, num_heads, head_dim), 0, 2, 1, 3)
