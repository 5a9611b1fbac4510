"""Models written as ONNX text, whose lines may stand in the order in which they read best."""

from __future__ import annotations

import onnx
import onnx.parser
import onnx.shape_inference
import onnx_ir as ir


def read_model(text: str) -> ir.Model:
    """The model with its nodes in order and shapes inferred."""
    proto = onnx.parser.parse_model(text)
    _sort(proto.graph)
    return ir.from_proto(onnx.shape_inference.infer_shapes(proto, data_prop=True))


def _sort(graph: onnx.GraphProto) -> None:
    known = {value.name for value in (*graph.input, *graph.initializer)} | {""}
    waiting, ordered = list(graph.node), []
    while waiting:
        node = next(n for n in waiting if known.issuperset(n.input))
        waiting.remove(node)
        known.update(node.output)
        ordered.append(node)
    del graph.node[:]
    graph.node.extend(ordered)
