"""The steps of the operator in their order, from raw projections to outputs."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from qkexport.body.attention import attend
from qkexport.body.cache import Rows, append
from qkexport.body.operands import Operands
from qkexport.body.projection import merge_heads, project_query_and_key, project_value
from qkexport.body.tape import BodyTape
from qkexport.signature import AttentionSignature, DType


def attention_body(
    tape: BodyTape, signature: AttentionSignature, values: Mapping[str, ir.Value]
) -> tuple[ir.Value, ...]:
    """Writes one attention onto a tape.

    Args:
        tape: Receives the nodes.
        signature: The attributes and the types of the inputs.
        values: The inputs that are present, by the operator's names.

    Returns:
        One value for each of `signature.outputs`.

    Raises:
        UnsupportedModelError: A head dimension or the width of a rotary cache is dynamic.
    """
    operands = Operands(tape, signature, values)
    query, new_key = project_query_and_key(operands)
    key = append(operands, "past_key", Rows(new_key, DType.FLOAT32))
    value = append(operands, "past_value", Rows(project_value(operands), signature.dtype))
    output = merge_heads(operands, attend(operands, query, key, value))
    if len(signature.outputs) == 1:
        return (output,)
    return output, _stored(operands, key), _stored(operands, value)


def _stored(operands: Operands, rows: Rows) -> ir.Value:
    """Rows as an output of the body: of type T."""
    return operands.tape.cast(rows.value, rows.dtype, operands.signature.dtype)
