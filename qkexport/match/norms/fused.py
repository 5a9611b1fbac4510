"""Norms that are one operator.

RMSNormalization(x, scale)           opset 23; its result has the type of scale
SimplifiedLayerNormalization(x, scale)    the same, as ONNX Runtime spells it
LayerNormalization(x, scale, bias)   opset 17
"""

from __future__ import annotations

import onnx_ir as ir

from qkexport.match.facts import Facts, data_input, integer, number, producer
from qkexport.match.fills import all_ones
from qkexport.match.norms.norm import Norm
from qkexport.spec import QkNorm


def fused_norm(facts: Facts, value: ir.Value) -> Norm | None:
    """Matches the operator; a norm whose statistics are used elsewhere stays."""
    node = producer(value, "RMSNormalization", "SimplifiedLayerNormalization", "LayerNormalization")
    if node is None or node.inputs[0] is None or value is not node.outputs[0]:
        return None
    if any(output.uses() or output.is_graph_output() for output in node.outputs[1:]):
        return None
    source, weight = node.inputs[0], data_input(node, 1)
    rank = facts.shapes.rank(source)
    if rank is None or integer(node, "stash_type", 1) != 1:
        return None
    if weight is not None and all_ones(facts, weight):
        weight = None  # what a norm without a gain is given
    layer = node.op_type == "LayerNormalization"
    return Norm(
        QkNorm.LAYER if layer else QkNorm.RMS,
        source,
        tuple(range(integer(node, "axis", -1) % rank, rank)),
        number(node, "epsilon", 1e-5),
        weight=weight,
        bias=data_input(node, 2) if layer else None,
        rounds_before_weight=not layer and facts.dtype(value) == facts.dtype(source),
    )
