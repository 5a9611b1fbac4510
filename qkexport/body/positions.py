"""Who stands where: the part of visibility that follows from positions alone."""

from __future__ import annotations

import onnx_ir as ir

from qkexport.body.operands import Operands
from qkexport.body.tape import Size
from qkexport.spec import Causal, KvCache


def is_plain_causal(operands: Operands) -> bool:
    """Whether positions make a triangle that starts at the upper left corner and nothing else."""
    spec, dims = operands.signature.spec, operands.signature.dims
    if spec.window_left >= 0 or spec.causal is Causal.NONE:
        return False
    if spec.causal is Causal.UPPER_LEFT:
        return _upper_left_offset(operands) == 0
    same_length = dims.seqlen_q is not None and dims.seqlen_q == dims.seqlen_total
    return same_length and not operands.has("kv_lengths")


def always_see_a_key(operands: Operands) -> bool:
    """Whether positions surely leave every query a key, given that T is not 0."""
    spec = operands.signature.spec
    if spec.window_left >= 0:
        return False
    if spec.causal is Causal.LOWER_RIGHT:
        return is_plain_causal(operands)
    return True  # key 0 stands at or before i + offset, whatever the right window adds


def position_mask(operands: Operands) -> ir.Value | None:
    """Causal and windows: bool [Sq,T], or [B,1,Sq,T] where lengths shift the diagonal."""
    spec, tape = operands.signature.spec, operands.tape
    after = 0 if spec.causal is not Causal.NONE else spec.window_right
    before = spec.window_left
    if after < 0 and before < 0:
        return None
    query_row = tape.unsqueeze(tape.steps(operands.seqlen_q), 1)
    offset = _offset(operands)
    diagonal = query_row if offset == 0 else tape.op("Add", query_row, tape.as_value(offset))
    key_row = tape.steps(operands.seqlen_total)
    parts = []
    if after >= 0:
        limit = tape.op("Add", diagonal, tape.ints(after)) if after else diagonal
        parts.append(tape.op("LessOrEqual", key_row, limit))
    if before >= 0:
        limit = tape.op("Sub", diagonal, tape.ints(before)) if before else diagonal
        parts.append(tape.op("GreaterOrEqual", key_row, limit))
    return parts[0] if len(parts) == 1 else tape.op("And", *parts)


def _offset(operands: Operands) -> Size:
    """The key at query 0's own position: a number, [1], or [B,1,1,1]."""
    tape = operands.tape
    if operands.signature.spec.causal is not Causal.LOWER_RIGHT:
        return _upper_left_offset(operands)
    if operands.has("kv_lengths"):
        offset = tape.op("Sub", operands.kv_lengths, tape.as_value(operands.seqlen_q))
        return tape.unsqueeze(offset, 1, 2, 3)
    return tape.subtract(operands.seqlen_total, operands.seqlen_q)


def _upper_left_offset(operands: Operands) -> Size:
    static = operands.signature.spec.kv_cache is KvCache.STATIC
    return 0 if static else operands.seqlen_past
