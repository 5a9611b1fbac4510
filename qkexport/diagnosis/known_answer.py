"""An attention small enough to compute by hand, for probes of every backend.

One batch entry and head, two positions, two channels, RMS norm without gain or epsilon, scale 1:
query row 0 is (3, 4) / sqrt(12.5), key row 0 is (sqrt 2, 0) and key row 1 is (0, sqrt 2), so the
scores of row 0 are 1.2 and 1.6; those of row 1, whose query is (1, 0), are 2 and 0.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from qkexport.spec import OP_DOMAIN, OP_TYPE, OP_VERSION, AttentionSpec

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch

SPEC: Final = AttentionSpec(num_heads=1, num_kv_heads=1, scale=1.0, qk_norm_epsilon=0.0)
QUERY: Final = ((3.0, 4.0), (1.0, 0.0))
KEY: Final = ((1.0, 0.0), (0.0, 1.0))
VALUE: Final = ((1.0, 2.0), (3.0, 4.0))
_FIRST: Final = tuple(1 / (1 + math.exp(-difference)) for difference in (1.2 - 1.6, 2.0 - 0.0))
ANSWER: Final = tuple(
    tuple(p * first + (1 - p) * second for first, second in zip(*VALUE, strict=True))
    for p in _FIRST
)
_TOLERANCE: Final = 1e-5  # some float32 roundings of numbers up to 4


def known_inputs() -> dict[str, torch.Tensor]:
    """Query, key and value, `[1, 2, 2]` float32."""
    import torch

    rows = {"query": QUERY, "key": KEY, "value": VALUE}
    return {name: torch.tensor([row]) for name, row in rows.items()}


def check_answer(output: torch.Tensor) -> str:
    """One sentence that says the answer is right.

    Raises:
        ArithmeticError: It is wrong.
    """
    import torch

    expected = torch.tensor([ANSWER], dtype=torch.float64)
    found = output.detach().cpu().double().reshape(expected.shape)
    error = float((found - expected).abs().max())
    if not error <= _TOLERANCE:
        message = f"a known attention came out as {found.flatten().tolist()}, error {error:.3g}"
        raise ArithmeticError(message)
    return f"a known attention came out right, error {error:.1g}"


def known_model() -> ir.Model:
    """The attention as a graph of one fused node."""
    import onnx_ir as ir

    kind, shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([1, 2, 2])
    inputs = [ir.Value(name=name, type=kind, shape=shape) for name in ("query", "key", "value")]
    node = ir.node(
        OP_TYPE, inputs, attributes=SPEC.to_attributes(), domain=OP_DOMAIN, name="attention"
    )
    node.outputs[0].name, node.outputs[0].type, node.outputs[0].shape = "output", kind, shape
    opsets = {"": 23, OP_DOMAIN: OP_VERSION}
    graph = ir.Graph(inputs, node.outputs, nodes=[node], opset_imports=opsets, name="known")
    return ir.Model(graph, ir_version=10)
