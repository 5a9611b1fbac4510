"""Tensors that hold one number everywhere, whatever their shape.

Expand(1, shape);   ConstantOfShape(shape, value=1)
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from qkexport.match.facts import Facts, producer


def all_ones(facts: Facts, value: ir.Value) -> bool:
    """Whether every element is one, or true."""
    array = facts.constants.array(value)
    if array is not None:
        return bool((array == np.ones((), array.dtype)).all())
    node = producer(value, "Expand", "ConstantOfShape")
    if node is None:
        return False
    if node.op_type == "Expand":
        return node.inputs[0] is not None and all_ones(facts, node.inputs[0])
    given = node.attributes.get("value")
    return given is not None and bool((given.as_tensor().numpy() == 1).all())
