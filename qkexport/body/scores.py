"""Attention out of MatMul and Softmax, for where no Attention operator serves."""

from __future__ import annotations

import onnx_ir as ir

from qkexport.body.mask import as_bias, blind_rows_zeroed, build_mask
from qkexport.body.operands import Operands
from qkexport.body.tape import BodyTape, Size
from qkexport.signature import DType


def attend_with_primitives(
    operands: Operands, query: ir.Value, key: ir.Value, value: ir.Value, dtype: DType
) -> ir.Value:
    """Attention of BNSD tensors of type `dtype`; the scale is in the queries already.

    Keys and values are not repeated for grouped queries: the queries of a group become rows of one
    product, [B,Hkv,G*Sq,D] x [B,Hkv,D,T].
    """
    tape, spec = operands.tape, operands.signature.spec
    query = _grouped(operands, query, operands.head_dim)
    scores = tape.op("MatMul", query, tape.transpose(key, 0, 1, 3, 2))
    scores = tape.cast(scores, dtype, DType.FLOAT32)
    if spec.softcap:
        cap = tape.float(spec.softcap)
        scores = tape.op("Mul", tape.op("Tanh", tape.op("Div", scores, cap)), cap)
    mask = build_mask(operands)
    bias = as_bias(operands, mask)
    if bias is not None:
        scores = _ungrouped(operands, scores, operands.seqlen_total)
        scores = tape.op("Add", scores, bias)
        scores = _grouped(operands, scores, operands.seqlen_total)
    weights = tape.cast(tape.op("Softmax", scores, axis=-1), DType.FLOAT32, dtype)
    output = _ungrouped(operands, tape.op("MatMul", weights, value), operands.head_dim_v)
    return blind_rows_zeroed(operands, mask, output, dtype)


def _grouped(operands: Operands, x: ir.Value, width: Size) -> ir.Value:
    """[B,H,Sq,width] to [B,Hkv,G*Sq,width]."""
    spec, tape = operands.signature.spec, operands.tape
    if spec.group_size == 1:
        return x
    rows = operands.seqlen_q
    if isinstance(rows, int) and isinstance(width, int):
        return tape.reshape(x, 0, spec.num_kv_heads, spec.group_size * rows, width)
    return _axes_moved(tape, x, larger=2, smaller=1, factor=spec.group_size)


def _ungrouped(operands: Operands, x: ir.Value, width: Size) -> ir.Value:
    """[B,Hkv,G*Sq,width] to [B,H,Sq,width]."""
    spec, tape = operands.signature.spec, operands.tape
    if spec.group_size == 1:
        return x
    rows = operands.seqlen_q
    if isinstance(rows, int) and isinstance(width, int):
        return tape.reshape(x, 0, spec.num_heads, rows, width)
    return _axes_moved(tape, x, larger=1, smaller=2, factor=spec.group_size)


def _axes_moved(tape: BodyTape, x: ir.Value, *, larger: int, smaller: int, factor: int) -> ir.Value:
    """Reshapes by moving a factor from one axis to another.

    The new shape is computed without Concat: ONNX Runtime rewrites a concatenated shape to one with
    a -1 in it, which it then refuses for empty tensors.
    """
    multiplier, divisor = [1, 1, 1, 1], [1, 1, 1, 1]
    multiplier[larger], divisor[smaller] = factor, factor
    shape = tape.op("Mul", tape.op("Shape", x), tape.ints(*multiplier))
    return tape.op("Reshape", x, tape.op("Div", shape, tape.ints(*divisor)))
