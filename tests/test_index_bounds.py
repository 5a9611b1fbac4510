"""The tables of a graph bound the integers that look things up in them."""

from __future__ import annotations

import onnx_ir as ir
from onnx_ir import tape

from qkexport.index_bounds import index_bounds


def _value(name: str, dtype: ir.DataType, shape: list[int | str]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def test_tables_are_found_through_nodes_that_move_indices() -> None:
    ids = _value("ids", ir.DataType.INT64, ["n"])
    places = _value("places", ir.DataType.INT64, ["n"])
    added = _value("added", ir.DataType.INT64, ["n"])
    large, small = (_value(f"t{n}", ir.DataType.FLOAT, [n, 4]) for n in (59, 17))
    wide = _value("wide", ir.DataType.FLOAT, [4, 11])
    steps = tape.Tape()
    moved = steps.op("Unsqueeze", [steps.op("Cast", [ids], {"to": 7}), places])
    steps.op("Gather", [large, moved])
    steps.op("Gather", [small, ids])
    steps.op("Gather", [wide, places], {"axis": 1})
    steps.op("Gather", [small, steps.op("Add", [added, added])])
    graph = ir.Graph([ids, places, added], [], nodes=steps.nodes, opset_imports={"": 20})
    bounds = index_bounds(ir.Model(graph, ir_version=10))
    assert bounds == {"ids": 17, "places": 11}, "the smallest table; arithmetic is not followed"
