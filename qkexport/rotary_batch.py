"""RotaryEmbedding nodes whose tables have a batch of one, as exporters write them, made valid.

ONNX asks for cosines and sines, or position ids, of the batch that is rotated, and ONNX Runtime
refuses others. torch.onnx fuses rotations at opset 23 without looking at that.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import onnx_ir as ir

_TABLES: Final = (1, 2)  # inputs: cosines and sines [B,S,R/2], if there are no ids
_IDS: Final = 3  # positions [B,S]


def complete_rotary_batches(model: ir.Model) -> int:
    """Expands the tables of RotaryEmbedding nodes to the batch of what they rotate, in place.

    Tables that are known to have that batch, or to be [rows, R/2], stay as they are.

    Args:
        model: Types and shapes are used where known.

    Returns:
        How many inputs were expanded.
    """
    expander = _Expander(model.graph)
    for node in list(model.graph):
        if node.op_type == "RotaryEmbedding" and node.domain == "":
            has_ids = len(node.inputs) > _IDS and node.inputs[_IDS] is not None
            for index in (_IDS,) if has_ids else _TABLES:
                expander.expand(node, index)
    return expander.count


class _Expander:
    """Equal tables are expanded once for each batch."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._expanded: dict[tuple[ir.Value, object], ir.Value] = {}
        self.count = 0

    def expand(self, node: ir.Node, index: int) -> None:
        x, table = node.inputs[0], node.inputs[index]
        if x is None or table is None:
            return
        batch = _batch(x)
        if batch is not None and batch == _batch(table):
            return
        key = table, x if batch is None else batch
        if key not in self._expanded:
            self._expanded[key] = self._new(node, x, table, 1 if index == _IDS else 2)
        node.replace_input_with(index, self._expanded[key])
        self.count += 1

    def _new(self, place: ir.Node, x: ir.Value, table: ir.Value, others: int) -> ir.Value:
        """[1,...] or [B,...] -> [B,...]; a one in the shape keeps the table's own size."""
        tape = ir.tape.Tape()
        sizes = tape.op("Shape", [x], {"start": 0, "end": 1})
        ones = tape.op("Constant", [], {"value": ir.tensor(np.ones(others, np.int64))})
        result = tape.op("Expand", [table, tape.op("Concat", [sizes, ones], {"axis": 0})])
        result.type = table.type
        if x.shape is not None and table.shape is not None:
            result.shape = ir.Shape([x.shape[0], *table.shape[1:]])
        self._graph.insert_before(place, tape.nodes)  # which names them
        return result


def _batch(value: ir.Value) -> int | str | None:
    """Size or name of the first dimension, or None where it is not known."""
    if value.shape is None:
        return None
    size = value.shape[0]
    return size if isinstance(size, int) else size.value
