"""How a proof fails: with a reason and the node it failed at."""

from __future__ import annotations

import onnx_ir as ir


class NotProvenError(Exception):
    """Raised inside matching and caught there: not fusing is a result, not an error.

    Args:
        reason: Lower case, no full stop; a user reads it.
        node: Where the proof stopped.
    """

    def __init__(self, reason: str, node: ir.Node | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node


def describe(node: ir.Node | None) -> str:
    """How reasons name a node."""
    return "the graph's input" if node is None else f"{node.op_type} '{node.name}'"
