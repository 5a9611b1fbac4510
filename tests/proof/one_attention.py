"""Graphs of one attention node with chosen inputs, for tests of mutants."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir
import torch

from qkexport.run.onnx_types import ONNX_DTYPES
from qkexport.signature import INPUT_NAMES
from qkexport.spec import OP_DOMAIN, OP_TYPE, OP_VERSION, AttentionSpec

WEIGHTS = ("q_norm_weight", "k_norm_weight", "q_norm_bias", "k_norm_bias")


def one_attention(spec: AttentionSpec, inputs: dict[str, torch.Tensor]) -> tuple[ir.Model, ir.Node]:
    """A graph from the inputs to one node; norm parameters are weights of the graph."""
    graph_inputs, weights = [], []
    values: dict[str, ir.Value] = {}
    for name, x in inputs.items():
        dtype = ir.DataType(ONNX_DTYPES[x.dtype])
        value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(x.shape))
        if name in WEIGHTS:
            value.const_value = ir.tensor(x.numpy(), name=name)
            weights.append(value)
        else:
            graph_inputs.append(value)
        values[name] = value
    last = max(INPUT_NAMES.index(name) for name in inputs)
    node = ir.node(
        OP_TYPE,
        [values.get(name) for name in INPUT_NAMES[: last + 1]],
        attributes=spec.to_attributes(),
        domain=OP_DOMAIN,
        name="attention",
    )
    node.outputs[0].name, node.outputs[0].type = "output", values["query"].type
    graph = ir.Graph(
        graph_inputs,
        node.outputs,
        nodes=[node],
        initializers=weights,
        opset_imports={"": 24, OP_DOMAIN: OP_VERSION},
        name="one",
    )
    return ir.Model(graph, ir_version=10), node


def attention_inputs(
    num_heads: int, num_kv_heads: int, *, rank: int = 3, head_dim: int = 8, **extra: Any
) -> dict[str, torch.Tensor]:
    """Query, key and value of two batch entries and five positions, and what else is asked for."""
    generator = torch.Generator().manual_seed(0)

    def draw(heads: int) -> torch.Tensor:
        x = torch.randn(2, heads, 5, head_dim, generator=generator)
        return x if rank == 4 else x.transpose(1, 2).flatten(2)

    return {
        "query": draw(num_heads),
        "key": draw(num_kv_heads),
        "value": draw(num_kv_heads),
        **extra,
    }
