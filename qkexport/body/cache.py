"""The key/value cache: past rows and new rows become the rows that attention reads."""

from __future__ import annotations

import dataclasses

import onnx_ir as ir

from qkexport.body.operands import Operands
from qkexport.body.tape import Size
from qkexport.signature import DType
from qkexport.spec import KvCache

_TO_THE_END = 2**62


@dataclasses.dataclass(frozen=True)
class Rows:
    """All keys or values, BNSD.

    Attributes:
        value: [B,Hkv,T,D].
        dtype: Its element type: T, or float32 where nothing had to be stored.
    """

    value: ir.Value
    dtype: DType


def append(operands: Operands, past_name: str, new: Rows) -> Rows:
    """Joins the rows of `past_name`, if there are any, with the new ones, rounded to T."""
    signature, tape = operands.signature, operands.tape
    if not operands.has(past_name):
        return new
    past = operands.values[past_name]
    if signature.spec.kv_cache is KvCache.STATIC:
        return Rows(_write(operands, past, new), signature.dtype)
    stored = tape.cast(new.value, new.dtype, signature.dtype)
    return Rows(tape.op("Concat", past, stored, axis=2), signature.dtype)


def _write(operands: Operands, past: ir.Value, new: Rows) -> ir.Value:
    """Writes the new rows to [kv_lengths - Skv, kv_lengths) of the buffer.

    A row before the buffer's first is dropped: its number, counted from the end, names a row that
    no other one writes, and that row is written with what it holds already.
    """
    tape, dtype = operands.tape, operands.signature.dtype
    value, count = _last_rows(operands, new.value)
    start = tape.op("Sub", operands.kv_lengths, tape.as_value(count))
    row = tape.op("Add", tape.unsqueeze(start, 1), tape.steps(count))  # [B,Skv]
    inside = tape.op("GreaterOrEqual", row, tape.ints(0))
    wrapped = tape.op("Add", row, tape.as_value(operands.seqlen_past))
    cell = _cells(operands, tape.op("Where", inside, row, wrapped), count)
    held = tape.cast(tape.op("GatherND", past, cell), dtype, DType.FLOAT32)
    fresh = tape.cast(value, new.dtype, DType.FLOAT32)
    update = tape.op("Where", tape.unsqueeze(inside, 1, 3), fresh, held)
    return tape.op("ScatterND", past, cell, tape.cast(update, DType.FLOAT32, dtype))


def _last_rows(operands: Operands, new: ir.Value) -> tuple[ir.Value, Size]:
    """No more new rows than the buffer holds; earlier ones would be overwritten anyway."""
    tape, new_rows, buffer_rows = operands.tape, operands.seqlen_kv, operands.seqlen_past
    if isinstance(new_rows, int) and isinstance(buffer_rows, int) and new_rows <= buffer_rows:
        return new, new_rows
    excess = tape.op("Sub", tape.as_value(new_rows), tape.as_value(buffer_rows))
    first = tape.op("Max", excess, tape.ints(0))
    kept = tape.op("Slice", new, first, tape.ints(_TO_THE_END), tape.ints(2))
    return kept, tape.op("Min", tape.as_value(new_rows), tape.as_value(buffer_rows))


def _cells(operands: Operands, row: ir.Value, count: Size) -> ir.Value:
    """Indices (b, h, row) into a buffer [B,Hkv,M,D]: int64 [B,Hkv,Skv,3]."""
    tape, num_heads = operands.tape, operands.signature.spec.num_kv_heads
    shape = tape.shape(operands.batch_size, num_heads, count, 1)
    parts = (
        tape.unsqueeze(tape.steps(operands.batch_size), 1, 2, 3),
        tape.unsqueeze(tape.steps(num_heads), 1, 2),
        tape.unsqueeze(row, 1, 3),
    )
    return tape.op("Concat", *(tape.op("Expand", part, shape) for part in parts), axis=-1)
