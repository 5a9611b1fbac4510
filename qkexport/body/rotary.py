"""RoPE in float32 on the first R channels of a BNSD tensor."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from qkexport.body.operands import Operands
from qkexport.body.tape import BodyTape
from qkexport.body.target import Runtime
from qkexport.errors import UnsupportedModelError
from qkexport.signature import Dim


@dataclasses.dataclass(frozen=True)
class Rotation:
    """Cosines and sines of one rotation, float32, prepared for the way it will be applied.

    Attributes:
        cos: [B,S,R/2] for the operator, else [B or 1, H or 1, S, R].
        sin: As cos; for primitives with the sign of the pair's first channel turned.
        by_operator: Whether RotaryEmbedding applies it.
    """

    cos: ir.Value
    sin: ir.Value
    by_operator: bool


def rotation(operands: Operands, prefix: str) -> Rotation:
    """Prepares the caches named `{prefix}cos_cache` and `{prefix}sin_cache`."""
    tape, cos_type = operands.tape, operands.signature.inputs[f"{prefix}cos_cache"]
    cos, sin = (operands.as_float(f"{prefix}{name}_cache") for name in ("cos", "sin"))
    width, batch, rank = cos_type.shape[-1], cos_type.shape[0], cos_type.rank
    if width is None:
        message = "A body needs to know the width of cos_cache, got a dynamic dimension."
        raise UnsupportedModelError(message, note="it is R/2 or R.")
    if rank == 2:
        rows = _row_numbers(operands)
        cos, sin = (tape.op("Gather", cache, rows, axis=0) for cache in (cos, sin))
        batch, rank = operands.signature.inputs["position_ids"].shape[0], 3
    full_width = width == operands.rotary_dim
    if tape.target.has_fused_ops and rank == 3 and not full_width:
        return Rotation(
            _for_every_batch(operands, cos, batch),
            _for_every_batch(operands, sin, batch),
            by_operator=True,
        )
    if rank == 3:
        cos, sin = tape.unsqueeze(cos, 1), tape.unsqueeze(sin, 1)
    return _for_primitives(operands, cos, sin, full_width)


def rotate(operands: Operands, x: ir.Value, turn: Rotation) -> ir.Value:
    """Rotates x, float32 [B,N,S,D]."""
    spec, tape = operands.signature.spec, operands.tape
    if turn.by_operator:
        return tape.op(
            "RotaryEmbedding",
            x,
            turn.cos,
            turn.sin,
            interleaved=int(spec.rotary_interleaved),
            rotary_embedding_dim=operands.rotary_dim % operands.head_dim,  # 0 is all of D
        )
    rest = operands.head_dim - operands.rotary_dim
    if not rest:
        return _rotate_all(operands, x, turn)
    turned, kept = tape.split(x, operands.rotary_dim, rest)
    return tape.op("Concat", _rotate_all(operands, turned, turn), kept, axis=-1)


def _row_numbers(operands: Operands) -> ir.Value:
    """position_ids, with negative ones made an error: `Gather` would count them from the end."""
    tape, rows = operands.tape, operands.values["position_ids"]
    if tape.target.runtime is Runtime.TENSORRT:
        return rows
    outside = tape.ints(2**62)
    return tape.op("Where", tape.op("Less", rows, tape.ints(0)), outside, rows)


def _for_every_batch(operands: Operands, cache: ir.Value, batch: Dim) -> ir.Value:
    """[B,S,W]: ONNX Runtime's RotaryEmbedding refuses a cache of batch 1 when B is more."""
    if batch is not None and batch == operands.signature.dims.batch_size:
        return cache
    tape = operands.tape
    return tape.op("Expand", cache, tape.shape(operands.batch_size, 1, 1))


def _for_primitives(operands: Operands, cos: ir.Value, sin: ir.Value, full_width: bool) -> Rotation:
    """One cosine a channel, and sines that carry the minus of the pair's first channel."""
    tape, interleaved = operands.tape, operands.signature.spec.rotary_interleaved
    half = operands.rotary_dim // 2
    first, second = _halves(tape, sin, half, interleaved) if full_width else (sin, sin)
    signed = _joined(tape, tape.op("Neg", first), second, half, interleaved)
    if not full_width:
        cos = _joined(tape, cos, cos, half, interleaved)
    return Rotation(cos, signed, by_operator=False)


def _rotate_all(operands: Operands, x: ir.Value, turn: Rotation) -> ir.Value:
    """X * cos + partner(x) * signed sin; a channel's partner is the other one of its pair."""
    tape, interleaved = operands.tape, operands.signature.spec.rotary_interleaved
    half = operands.rotary_dim // 2
    left, right = _halves(tape, x, half, interleaved)
    partner = _joined(tape, right, left, half, interleaved)
    return tape.op("Add", tape.op("Mul", x, turn.cos), tape.op("Mul", partner, turn.sin))


def _halves(tape: BodyTape, x: ir.Value, half: int, interleaved: bool) -> tuple[ir.Value, ir.Value]:
    """First and second channels of all pairs; interleaved ones keep a last axis of 1."""
    if not interleaved:
        first, second = tape.split(x, half, half)
        return first, second
    first, second = tape.split(tape.reshape(x, 0, 0, 0, half, 2), 1, 1)
    return tape.reshape(first, 0, 0, 0, half), tape.reshape(second, 0, 0, 0, half)


def _joined(
    tape: BodyTape, first: ir.Value, second: ir.Value, half: int, interleaved: bool
) -> ir.Value:
    """The inverse of `_halves`."""
    if not interleaved:
        return tape.op("Concat", first, second, axis=-1)
    pairs = tape.op("Concat", tape.unsqueeze(first, -1), tape.unsqueeze(second, -1), axis=-1)
    return tape.reshape(pairs, 0, 0, 0, 2 * half)
