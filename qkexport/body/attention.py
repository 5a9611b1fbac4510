"""Scores, softmax and weighted sum: by the Attention operator where it is right, else spelled out.

`Attention` is given BNSD tensors, a mask that covers the scores, a positive scale and, for ONNX
Runtime, the softcap: what both consumers were seen to get right. Head counts follow from the
shapes; presents, windows and lengths never reach it.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from qkexport.body.cache import Rows
from qkexport.body.mask import Mask, as_operator_bias, blind_rows_zeroed, build_mask
from qkexport.body.operands import Operands
from qkexport.body.positions import is_plain_causal
from qkexport.body.scores import attend_with_primitives
from qkexport.body.tape import BodyTape
from qkexport.body.target import Runtime
from qkexport.signature import Dim, DType

# TensorRT's fused attention: float16 or bfloat16, D a multiple of 8 within these bounds.
_TENSORRT_HEAD_DIMS = range(16, 257, 8)


def attend(operands: Operands, query: ir.Value, key: Rows, value: Rows) -> ir.Value:
    """Attention of BNSD tensors.

    Args:
        operands: The body's inputs.
        query: float32 [B,H,Sq,D], normalized and rotated.
        key: [B,Hkv,T,D].
        value: [B,Hkv,T,Dv].

    Returns:
        T [B,H,Sq,Dv].
    """
    tape, dtype = operands.tape, _operand_dtype(operands)
    fused = _attention_serves(operands)
    query = _scaled(operands, query, with_scale=not fused or operands.signature.spec.scale <= 0)
    query = tape.cast(query, DType.FLOAT32, dtype)
    keys, values = (tape.cast(rows.value, rows.dtype, dtype) for rows in (key, value))
    if fused:
        output = _attend_with_operator(operands, query, keys, values)
    else:
        output = attend_with_primitives(operands, query, keys, values, dtype)
    return tape.cast(output, dtype, operands.signature.dtype)


def _operand_dtype(operands: Operands) -> DType:
    """float32 inside for ONNX Runtime, whose float16 attention loses a digit; else T."""
    if operands.tape.target.runtime is Runtime.ORT:
        return DType.FLOAT32
    return operands.signature.dtype


def _scaled(operands: Operands, query: ir.Value, *, with_scale: bool) -> ir.Value:
    """Multiplies the queries by head_scale and, where nothing later will, by the scale."""
    tape = operands.tape
    if operands.has("head_scale"):
        scale = operands.as_float("head_scale")
        per_head = operands.signature.inputs["head_scale"].rank == 1
        query = tape.op("Mul", query, tape.unsqueeze(scale, 1, 2) if per_head else scale)
    if not with_scale:
        return query
    return tape.op("Mul", query, tape.float(operands.signature.spec.scale))


def _attention_serves(operands: Operands) -> bool:
    """Whether the Attention operator exists, has a kernel for this case and gets it right."""
    target, signature = operands.tape.target, operands.signature
    if not target.has_attention or 0 in _score_sizes(operands):
        return False
    if target.runtime is Runtime.ORT:
        return True
    return (
        signature.dtype is not DType.FLOAT32
        and not signature.spec.softcap
        and operands.head_dim == operands.head_dim_v
        and operands.head_dim in _TENSORRT_HEAD_DIMS
    )


@dataclasses.dataclass(frozen=True)
class _Operator:
    """An Attention node to be written, possibly inside a branch."""

    mask: ir.Value | None
    is_causal: bool
    scale: float
    softcap: float

    def write(self, tape: BodyTape, query: ir.Value, key: ir.Value, value: ir.Value) -> ir.Value:
        inputs = [query, key, value] if self.mask is None else [query, key, value, self.mask]
        attributes: dict[str, float] = {"scale": self.scale}
        if self.softcap:
            attributes["softcap"] = self.softcap
        if self.is_causal:
            return tape.op("Attention", *inputs, is_causal=1, **attributes)
        return tape.op("Attention", *inputs, **attributes)


def _attend_with_operator(
    operands: Operands, query: ir.Value, key: ir.Value, value: ir.Value
) -> ir.Value:
    tape, spec = operands.tape, operands.signature.spec
    for_tensorrt = tape.target.runtime is Runtime.TENSORRT
    masked = operands.has("attn_mask") or operands.has("kv_lengths")
    # TensorRT takes a mask or is_causal, not both.
    is_causal = is_plain_causal(operands) and not (masked and for_tensorrt)
    mask = build_mask(operands, skip_positions=is_causal)
    scale = spec.scale if spec.scale > 0 else 1.0
    operator = _Operator(_operator_mask(operands, mask), is_causal, scale, spec.softcap)
    if for_tensorrt:
        output = operator.write(tape, query, key, value)
        return blind_rows_zeroed(operands, mask, output, operands.signature.dtype)
    # ONNX Runtime's kernel gives zeros to blind rows itself, but refuses empty tensors.
    if None in _score_sizes(operands):
        return _unless_empty(operands, operator, query, key, value)
    return operator.write(tape, query, key, value)


def _operator_mask(operands: Operands, mask: Mask) -> ir.Value | None:
    """The mask as Attention takes it: bool, or a bias of the queries' type, [.., Sq, T]."""
    tape = operands.tape
    value = as_operator_bias(operands, mask, _operand_dtype(operands))
    if value is None or mask.covers_scores:
        return value
    return tape.op("Expand", value, tape.shape(1, 1, operands.seqlen_q, operands.seqlen_total))


def _unless_empty(
    operands: Operands, operator: _Operator, query: ir.Value, key: ir.Value, value: ir.Value
) -> ir.Value:
    """The operator where B, Sq and T are not 0, else zeros."""
    tape, num_heads = operands.tape, operands.signature.spec.num_heads
    zero = tape.constant(np.array(0, dtype=np.int64))
    has_query, has_key = (tape.op("Greater", tape.op("Size", x), zero) for x in (query, key))
    shape = tape.shape(operands.batch_size, num_heads, operands.seqlen_q, operands.head_dim_v)
    full, empty = tape.branch(), tape.branch()
    attended = operator.write(full, query, key, value)
    zeros = empty.op("ConstantOfShape", shape)
    return tape.op(
        "If",
        tape.op("And", has_query, has_key),
        then_branch=ir.Graph([], [attended], nodes=full.nodes, name="attention"),
        else_branch=ir.Graph([], [zeros], nodes=empty.nodes, name="nothing_to_attend_to"),
    )


def _score_sizes(operands: Operands) -> tuple[Dim, Dim, Dim]:
    dims = operands.signature.dims
    return dims.batch_size, dims.seqlen_q, dims.seqlen_total
