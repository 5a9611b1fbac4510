"""Finds what draws random numbers: such a model is no reference.

Two runs of it differ, so PyTorch's own error looks large, and a candidate may err by twice that.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram

_ONNX_RANDOM: Final = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
     "RandomUniformLike"}
)  # fmt: skip
# Arguments that, false or zero, make a random operator the identity or an ordinary one.
_SWITCHES: Final = ("train", "training", "p", "dropout", "dropout_p")


def random_operator(program: ExportedProgram) -> str:
    """The first operator of a program that draws random numbers, with its node; empty if none."""
    for module in program.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        for node in module.graph.nodes:
            if node.op == "call_function" and _draws(node):
                return f"{node.target} at {node.name}"
    return ""


def random_node(model: ir.Model) -> str:
    """The first node of a model that draws random numbers; empty if none does."""
    functions = (function.all_nodes() for function in model.functions.values())
    for node in itertools.chain(model.graph.all_nodes(), *functions):
        if node.domain == "" and (node.op_type in _ONNX_RANDOM or _is_training(node)):
            return f"{node.op_type} at {node.name}"
    return ""


def _draws(node: torch.fx.Node) -> bool:
    tags = getattr(node.target, "tags", ())
    if torch.Tag.nondeterministic_seeded not in tags or not node.users:
        return False
    given = _arguments(node)
    switches = [given[name] for name in _SWITCHES if given.get(name) is not None]
    return all(isinstance(value, torch.fx.Node) or bool(value) for value in switches)


def _arguments(node: torch.fx.Node) -> dict[str, Any]:
    """Arguments by name, defaults filled in."""
    schema = node.target._schema  # type: ignore[union-attr]
    defaults = {arg.name: arg.default_value for arg in schema.arguments if arg.has_default_value()}
    by_position = zip((arg.name for arg in schema.arguments), node.args, strict=False)
    return {**defaults, **dict(by_position), **node.kwargs}


def _is_training(node: ir.Node) -> bool:
    """True for a Dropout whose third input says so, or is computed."""
    if node.op_type != "Dropout" or len(node.inputs) < 3 or node.inputs[2] is None:
        return False
    constant = node.inputs[2].const_value
    return constant is None or bool(constant.numpy())
