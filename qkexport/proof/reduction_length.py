"""The longest sum over a model's weights: K of the tolerance's floor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from torch.export.graph_signature import InputKind

if TYPE_CHECKING:
    import onnx_ir as ir

    from qkexport.run.program import Program

# Axis of the weight that is summed over, by the operator that reads it as its second input.
_SUMMED_AXIS = {"MatMul": -2, "Gemm": -2}


def longest_sum_of_program(program: Program) -> int:
    """Terms in the longest sum that a weight of at least two axes takes part in.

    PyTorch keeps weights as `[out, in, ...]`.
    """
    exported = program.exported
    lengths = [
        math.prod(weight.shape[1:])
        for spec in exported.graph_signature.input_specs
        if spec.kind is InputKind.PARAMETER
        and (weight := exported.state_dict[str(spec.target)]).dim() > 1
    ]
    return max(lengths, default=1)


def longest_sum_of_model(model: ir.Model) -> int:
    """Terms in the longest sum that a weight of an ONNX graph takes part in."""
    lengths = [1]
    for node in model.graph:
        weight = node.inputs[1] if len(node.inputs) > 1 else None
        if weight is None or weight.const_value is None or len(weight.const_value.shape) < 2:
            continue
        sizes = weight.const_value.shape.numpy()
        if node.op_type == "Conv":
            lengths.append(math.prod(sizes[1:]))
        elif node.op_type in _SUMMED_AXIS:
            transposed = node.op_type == "Gemm" and bool(node.attributes.get_int("transB", False))
            lengths.append(sizes[-1 if transposed else -2])
    return max(lengths)
