"""What a query may see: positions, lengths and the mask input, merged into one mask."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx_ir as ir

from qkexport.body.operands import Operands
from qkexport.body.positions import always_see_a_key, position_mask
from qkexport.body.tape import Size
from qkexport.signature import DType

_LOWEST = {
    DType.FLOAT32: float(np.finfo(np.float32).min),
    DType.FLOAT16: float(np.finfo(np.float16).min),
    DType.BFLOAT16: -float.fromhex("0x1.fep127"),
}


@dataclasses.dataclass(frozen=True)
class Mask:
    """Both halves broadcast against [B,H,Sq,T]; None leaves everything as it is.

    Attributes:
        visible: bool, true where a query sees a key.
        additive: float32, added to the scores; -inf is not visible either.
        covers_scores: Whether the last two dimensions of the two together are Sq and T.
        may_blind: Whether a query may be left without any key, given that T is not 0.
    """

    visible: ir.Value | None
    additive: ir.Value | None
    covers_scores: bool
    may_blind: bool


def build_mask(operands: Operands, *, skip_positions: bool = False) -> Mask:
    """Merges all that restricts visibility.

    Args:
        operands: The body's inputs.
        skip_positions: Leave the causal triangle to the attention operator.
    """
    tape = operands.tape
    positions = None if skip_positions else position_mask(operands)
    parts = [] if positions is None else [positions]
    if operands.has("kv_lengths"):
        lengths = tape.unsqueeze(operands.kv_lengths, 1, 2, 3)
        parts.append(tape.op("Less", tape.steps(operands.seqlen_total), lengths))
    additive = None
    if operands.has("attn_mask"):
        if operands.signature.inputs["attn_mask"].dtype is DType.BOOL:
            parts.append(_expanded(operands, operands.values["attn_mask"]))
        else:
            additive = _expanded(operands, operands.as_float("attn_mask"))
    restricted = operands.has("kv_lengths") or operands.has("attn_mask")
    return Mask(
        _conjunction(operands, parts),
        additive,
        covers_scores=positions is not None or _input_covers_scores(operands),
        may_blind=restricted or not always_see_a_key(operands),
    )


def all_visible(operands: Operands, mask: Mask) -> ir.Value | None:
    """`mask.visible` with the -inf of `mask.additive` taken in."""
    if mask.additive is None:
        return mask.visible
    tape = operands.tape
    lowest = tape.float(_LOWEST[DType.FLOAT32])
    shown = tape.op("Not", tape.op("Less", mask.additive, lowest))
    return _conjunction(operands, [shown] if mask.visible is None else [mask.visible, shown])


def as_bias(operands: Operands, mask: Mask) -> ir.Value | None:
    """The mask as float32 to add to the scores."""
    if mask.visible is None:
        return mask.additive
    shown = operands.tape.float(0.0) if mask.additive is None else mask.additive
    return operands.tape.op("Where", mask.visible, shown, operands.tape.float(-np.inf))


def as_operator_bias(operands: Operands, mask: Mask, dtype: DType) -> ir.Value | None:
    """The mask as the Attention operator takes it, of type `dtype`.

    What is finite must stay so and stand clear of the lowest number: a narrower type would round it
    to -inf, and ONNX Runtime 1.32 takes a row of lowest numbers for one that sees nothing. Scores
    vanish beside half the lowest number as they do beside the lowest.
    """
    if mask.additive is None:
        return mask.visible
    tape = operands.tape
    finite = tape.op("Max", mask.additive, tape.float(_LOWEST[dtype] / 2))
    bias = tape.op("Where", all_visible(operands, mask), finite, tape.float(-np.inf))
    return tape.cast(bias, DType.FLOAT32, dtype)


def blind_rows_zeroed(operands: Operands, mask: Mask, output: ir.Value, dtype: DType) -> ir.Value:
    """Gives 0 to the rows of output, [B,H,Sq,Dv] of type `dtype`, whose query sees no key."""
    visible = all_visible(operands, mask) if mask.may_blind else None
    if visible is None:
        return output
    tape = operands.tape
    count = tape.reduce("ReduceSum", tape.cast(visible, DType.BOOL, DType.FLOAT32), -1)
    sees_any = tape.op("Greater", count, tape.float(0.0))
    zero = tape.cast(tape.float(0.0), DType.FLOAT32, dtype)
    return tape.op("Where", sees_any, output, zero)


def _conjunction(operands: Operands, parts: list[ir.Value]) -> ir.Value | None:
    if not parts:
        return None
    visible = parts[0]
    for part in parts[1:]:
        visible = operands.tape.op("And", visible, part)
    return visible


def _expanded(operands: Operands, mask: ir.Value) -> ir.Value:
    """The mask input with at least two axes, and entry b % Bm of it for entry b of the batch."""
    tape, shape = operands.tape, operands.signature.inputs["attn_mask"].shape
    if len(shape) < 2:
        return tape.unsqueeze(mask, *range(2 - len(shape)))
    batch_size = operands.signature.dims.batch_size
    if len(shape) < 4 or shape[0] == 1 or (shape[0] is not None and shape[0] == batch_size):
        return mask
    rows: Size = tape.size(mask, 0) if shape[0] is None else shape[0]
    if isinstance(rows, ir.Value):  # an empty batch must not divide by zero
        rows = tape.op("Max", rows, tape.ints(1))
    repeats = tape.op("Div", tape.as_value(operands.batch_size), tape.as_value(rows))
    return tape.op("Tile", mask, tape.shape(repeats, 1, 1, 1))


def _input_covers_scores(operands: Operands) -> bool:
    if not operands.has("attn_mask"):
        return False
    tail = operands.signature.inputs["attn_mask"].shape[-2:]
    dims = operands.signature.dims
    return len(tail) == 2 and None not in tail and tail == (dims.seqlen_q, dims.seqlen_total)
