"""Operators without an evaluation here are evaluated by ONNX's own reference, in numpy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from qkexport.errors import UnsupportedModelError
from qkexport.interpret.call import Call


def evaluate_by_onnx(
    call: Call, given: Sequence[torch.Tensor | None]
) -> Sequence[torch.Tensor | None]:
    """Evaluates one node; bfloat16 passes through float32.

    Raises:
        UnsupportedModelError: ONNX's reference does not know the operator either.
    """
    import onnx_ir as ir
    from onnx.reference import ReferenceEvaluator

    node = ir.to_proto(call.node)
    narrow = next((x.dtype for x in given if x is not None and x.is_floating_point()), None)
    feeds = {
        name: _to_numpy(x) for name, x in zip(node.input, given, strict=False) if x is not None
    }
    try:
        evaluator = ReferenceEvaluator(node, opsets={call.node.domain: call.opset})
        results = evaluator.run(None, feeds)
    except Exception as error:
        text = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        message = f"Node {call.node.name} must be a known operator, got {call.node.op_type}."
        raise UnsupportedModelError(message, note=f"{text}.") from error
    tensors = [None if x is None else torch.from_numpy(np.asarray(x)) for x in results]
    if narrow is torch.bfloat16:
        tensors = [x.bfloat16() if x is not None and x.is_floating_point() else x for x in tensors]
    return tensors


def _to_numpy(x: torch.Tensor) -> np.ndarray:
    return (x.float() if x.dtype is torch.bfloat16 else x).numpy()
