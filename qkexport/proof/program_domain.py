"""What a PyTorch program accepts, read from the program itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch.utils import _pytree as pytree

from qkexport.domain import InputDomain, ModelDomain, SizeRange

if TYPE_CHECKING:
    from collections.abc import Set

    from qkexport.run.program import Program

_MOVES_INDICES: Final = frozenset(
    {"view", "reshape", "expand", "slice", "select", "clone", "unsqueeze", "squeeze", "to",
     "_to_copy", "contiguous", "transpose", "permute", "flatten"}
)  # fmt: skip


def program_domain(program: Program) -> ModelDomain:
    """Names, types and shapes of a program's inputs, with the ranges of its symbols."""
    inputs = tuple(
        InputDomain(info.name, str(info.dtype).removeprefix("torch."), info.shape)
        for info in program.inputs
    )
    symbols: dict[str, SizeRange] = {}
    for expression, span in program.exported.range_constraints.items():
        symbols[str(expression)] = SizeRange(
            max(1, int(span.lower)),
            int(span.upper) if span.upper.is_Integer else None,
            _traced(program, str(expression)),
        )
    used = {symbol for item in inputs for symbol in item.symbols}
    return ModelDomain(inputs, {name: symbols.get(name, SizeRange()) for name in sorted(used)})


def _traced(program: Program, symbol: str) -> int | None:
    examples = example_tensors(program, frozenset())
    for info in program.inputs:
        if info.name in examples and symbol in info.shape:
            return int(examples[info.name].shape[info.shape.index(symbol)])
    return None


def example_tensors(program: Program, stand_ins: Set[str]) -> dict[str, torch.Tensor]:
    """The inputs a program was traced with, unless their values mean nothing."""
    args, kwargs = program.exported.example_inputs or ((), {})
    leaves = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    if len(leaves) != len(program.inputs):
        return {}
    named = zip(program.inputs, leaves, strict=True)
    return {info.name: leaf for info, leaf in named if info.name not in stand_ins}


def index_bounds_of_program(program: Program) -> dict[str, int]:
    """How many rows the smallest table has that each integer input looks up."""
    bounds: dict[str, int] = {}
    names = {info.name for info in program.inputs if not info.dtype.is_floating_point}
    for node in program.exported.graph.nodes:
        if node.op != "call_function" or getattr(node.target, "_opname", "") != "embedding":
            continue
        origin = program.names.get(_origin(node.args[1]), "")
        if origin in names:
            rows = int(node.args[0].meta["val"].shape[0])
            bounds[origin] = min(rows, bounds.get(origin, rows))
    return bounds


def _origin(node: Any) -> str:
    """Name of the placeholder whose values a node only moves; empty if it does more."""
    while isinstance(node, torch.fx.Node):
        if node.op == "placeholder":
            return node.name
        if getattr(node.target, "_opname", "") not in _MOVES_INDICES:
            return ""
        node = node.args[0]
    return ""
