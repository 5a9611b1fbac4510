"""The attentions of a graph as points where two models can be compared."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Mapping

import onnx_ir as ir

from qkexport.export.node import attention_nodes, node_signature, present_inputs
from qkexport.signature import AttentionSignature

_SCOPES = "pkg.torch.onnx.name_scopes"


@dataclasses.dataclass(frozen=True)
class AttentionPoint:
    """One QKNormAttention node.

    Attributes:
        node: The node.
        signature: What it computes.
        inputs: Values by the operator's names.
        module: Path of the PyTorch module it stands for; empty where the graph does not say.
    """

    node: ir.Node
    signature: AttentionSignature
    inputs: Mapping[str, ir.Value]
    module: str

    @property
    def output(self) -> ir.Value:
        return self.node.outputs[0]

    @property
    def num_heads(self) -> dict[str, int]:
        """Heads side by side along the last axis, by tensor; empty where heads have an axis."""
        spec = self.signature.spec
        if self.signature.rank == 4:
            return {}
        return {
            "query": spec.num_heads,
            "key": spec.num_kv_heads,
            "value": spec.num_kv_heads,
            "output": spec.num_heads,
        }


def attention_points(model: ir.Model) -> list[AttentionPoint]:
    """The QKNormAttention nodes of the main graph, in its order."""
    return [
        AttentionPoint(node, node_signature(node), present_inputs(node), _module(node))
        for node in attention_nodes(model.graph)
        if node.graph is model.graph
    ]


def _module(node: ir.Node) -> str:
    """What the modules that make query, key and value have in common."""
    present = present_inputs(node)
    scopes = [_scope(present[name]) for name in ("query", "key", "value")]
    shared = ""
    for names in zip(*(scope for scope in scopes if scope), strict=False):
        if len(set(names)) == 1:
            shared = names[0]
    return shared


def _scope(value: ir.Value | None) -> list[str]:
    """Modules around the nearest node that says where it comes from."""
    for _ in range(8):
        node = value.producer() if value is not None else None
        if node is None:
            return []
        names = _scopes(node)
        if names:
            return names
        value = node.inputs[0] if node.inputs else None
    return []


def module_of(node: ir.Node) -> str:
    """Path of the PyTorch module that a node comes from; empty where the graph does not say."""
    return next((name for name in reversed(_scopes(node)) if name), "")


def _scopes(node: ir.Node) -> list[str]:
    """Modules around a node, from the outside in."""
    text = node.metadata_props.get(_SCOPES)
    names: list[str] = ast.literal_eval(text) if text else []
    return names[:-1]
