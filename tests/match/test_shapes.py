"""Ranges of Slice are those that ONNX Runtime takes."""

from __future__ import annotations

import itertools

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import parser

from qkexport.match.constants import Constants
from qkexport.match.shapes import Shapes, slice_ranges

_MODEL = """<ir_version: 8, opset_import: ["" : 20]>
g (int64[{length}] x) => (int64[n] y)
<int64[1] start = {{{start}}}, int64[1] end = {{{end}}},
 int64[1] axis = {{0}}, int64[1] step = {{{step}}}>
{{ y = Slice(x, start, end, axis, step) }}"""
_BOUNDS = (-9, -5, -1, 0, 1, 4, 9)


@pytest.mark.parametrize("length", [0, 1, 5])
@pytest.mark.parametrize("step", [-3, -1, 1, 2])
def test_ranges_are_those_of_the_runtime(length: int, step: int) -> None:
    for start, end in itertools.product(_BOUNDS, _BOUNDS):
        proto = parser.parse_model(_MODEL.format(length=length, start=start, end=end, step=step))
        session = ort.InferenceSession(proto.SerializeToString())
        (taken,) = session.run(None, {"x": np.arange(length)})
        graph = ir.from_proto(proto).graph
        (node,) = graph
        shapes = Shapes(graph, Constants(20))
        assert node.inputs[0] is not None
        sizes = shapes.sizes(node.inputs[0])
        assert sizes is not None
        found = slice_ranges(shapes, node, sizes)
        assert found is not None
        assert list(found.get(0, range(length))) == taken.tolist()
