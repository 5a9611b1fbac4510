"""How far integer inputs may count: the rows of the tables that a graph looks them up in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import onnx_ir as ir

# Nodes that move indices around without changing them.
_MOVES_INDICES: Final = frozenset(
    {"Cast", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose",
     "Unsqueeze"}
)  # fmt: skip


def index_bounds(model: ir.Model) -> dict[str, int]:
    """How many rows the smallest table has that each integer input looks up.

    Args:
        model: Graph with Gather nodes on weights, such as embeddings.

    Returns:
        Input name to the exclusive upper bound of its values.
    """
    bounds: dict[str, int] = {}
    for node in model.graph:
        if node.op_type != "Gather" or len(node.inputs) < 2:
            continue
        table, indices = node.inputs[0], node.inputs[1]
        axis = node.attributes.get_int("axis", 0)
        rows = table.shape[axis] if table is not None and table.shape is not None else None
        origin = _origin(indices)
        if isinstance(rows, int) and origin is not None and origin.is_graph_input():
            name = origin.name or ""
            bounds[name] = min(rows, bounds.get(name, rows))
    return bounds


def _origin(value: ir.Value | None) -> ir.Value | None:
    while value is not None:
        node = value.producer()
        if node is None or node.op_type not in _MOVES_INDICES:
            return value if node is None else None
        value = node.inputs[0]
    return None
