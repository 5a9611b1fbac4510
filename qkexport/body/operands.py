"""The inputs of a body with what is known about them: types, sizes, and where sizes come from."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import onnx_ir as ir

from qkexport.body.tape import BodyTape, Size
from qkexport.errors import UnsupportedModelError
from qkexport.signature import AttentionSignature, Dim, DType
from qkexport.spec import KvCache


@dataclasses.dataclass(frozen=True)
class Operands:
    """Everything a step needs to read: the tape it writes to, the signature and the values.

    Sizes are numbers where the signature knows them and one `Shape` node each where it does not.
    """

    tape: BodyTape
    signature: AttentionSignature
    values: Mapping[str, ir.Value]

    def has(self, name: str) -> bool:
        return self.signature.has(name)

    def as_float(self, name: str) -> ir.Value:
        """An input in float32."""
        dtype = self.signature.inputs[name].dtype
        return self.tape.cast(self.values[name], dtype, DType.FLOAT32)

    @property
    def head_dim(self) -> int:
        return _known("head_dim", self.signature.dims.head_dim)

    @property
    def head_dim_v(self) -> int:
        return _known("head_dim of value", self.signature.dims.head_dim_v)

    @property
    def rotary_dim(self) -> int:
        return _known("rotary_dim", self.signature.dims.rotary_dim)

    @functools.cached_property
    def batch_size(self) -> Size:
        return self._size(self.signature.dims.batch_size, "query", 0)

    @functools.cached_property
    def seqlen_q(self) -> Size:
        return self._size(self.signature.dims.seqlen_q, "query", self._row_axis)

    @functools.cached_property
    def seqlen_kv(self) -> Size:
        """New keys, Skv."""
        return self._size(self.signature.dims.seqlen_kv, "key", self._row_axis)

    @functools.cached_property
    def seqlen_past(self) -> Size:
        """Rows of past_key: P, or M with a static cache; 0 without one."""
        if not self.has("past_key"):
            return 0
        return self._size(self.signature.dims.seqlen_past, "past_key", 2)

    @functools.cached_property
    def seqlen_total(self) -> Size:
        """T: all keys a query may look at."""
        if self.signature.spec.kv_cache is KvCache.STATIC:
            return self.seqlen_past
        if not self.has("past_key"):
            return self.seqlen_kv
        return self.tape.add(self.seqlen_past, self.seqlen_kv)

    @functools.cached_property
    def kv_lengths(self) -> ir.Value:
        """Valid rows of each batch entry, clamped to [0, T], int64 [B]."""
        tape = self.tape
        low = tape.op("Max", self.values["kv_lengths"], tape.ints(0))
        return tape.op("Min", low, tape.as_value(self.seqlen_total))

    @functools.cached_property
    def segment_rows(self) -> ir.Value:
        """Gain row of each new token, int64 [Sq]: min(#(ends <= t), G - 1)."""
        tape, ends = self.tape, self.values["segment_ends"]
        token = tape.unsqueeze(tape.steps(self.seqlen_q), 1)
        passed = tape.op("GreaterOrEqual", token, ends)
        passed = tape.cast(passed, DType.BOOL, DType.INT64)
        count = tape.op("ReduceSum", passed, tape.ints(1), keepdims=0)
        last = tape.op("Sub", tape.op("Shape", ends), tape.ints(1))
        return tape.op("Min", count, last)

    @property
    def _row_axis(self) -> int:
        return 1 if self.signature.rank == 3 else 2

    def _size(self, known: Dim, name: str, axis: int) -> Size:
        # A known 0 is left to run time too: shape inference trips over constants that are 0.
        return known if known else self.tape.size(self.values[name], axis)


def _known(subject: str, dim: Dim) -> int:
    if dim is None:
        message = f"A body needs to know {subject} before run time, got a dynamic dimension."
        raise UnsupportedModelError(message, hint="make the last dimension of query static.")
    return dim
