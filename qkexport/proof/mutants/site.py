"""One attention of a graph, as mutants edit it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from qkexport.export.node import node_signature, present_inputs
from qkexport.signature import INPUT_NAMES, AttentionSignature
from qkexport.spec import AttentionSpec

_TYPES = {
    "float32": ir.DataType.FLOAT,
    "float16": ir.DataType.FLOAT16,
    "bfloat16": ir.DataType.BFLOAT16,
}


class Site:
    """A QKNormAttention node and its surroundings; every method edits the graph in place.

    Args:
        model: The model; a mutant gets a copy of its own.
        node: The attention, its inputs spelled by position.
    """

    def __init__(self, model: ir.Model, node: ir.Node) -> None:
        self.model = model
        self.node = node
        self.signature: AttentionSignature = node_signature(node)
        self._made = 0

    @property
    def spec(self) -> AttentionSpec:
        return self.signature.spec

    @property
    def dtype(self) -> ir.DataType:
        """T of the attention."""
        return _TYPES[str(self.signature.dtype)]

    def input(self, name: str) -> ir.Value | None:
        """The value of an input, or None where it is absent."""
        return present_inputs(self.node).get(name)

    def set_input(self, name: str, value: ir.Value | None) -> None:
        """Passes another value, or none."""
        index = INPUT_NAMES.index(name)
        if index >= len(self.node.inputs):
            self.node.resize_inputs(index + 1)
        self.node.replace_input_with(index, value)

    def set_spec(self, **changes: Any) -> None:
        """Changes attributes."""
        spec = dataclasses.replace(self.spec, **changes)
        for name, value in spec.to_attributes().items():
            self.node.attributes.add(ir.convenience.convert_attribute(name, value))

    def constant(self, array: Any, dtype: ir.DataType | None = None) -> ir.Value:
        """A new weight.

        Args:
            array: What numpy makes an array of.
            dtype: Floating type; None keeps the array's own.
        """
        values = np.asarray(array)
        tensor = ir.tensor(values if dtype is None else values.astype(dtype.numpy()))
        value = ir.Value(name=self._name("constant"), const_value=tensor)
        value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape.numpy())
        self._graph.register_initializer(value)
        return value

    def before(
        self, op_type: str, inputs: Sequence[ir.Value | None], **attributes: Any
    ) -> ir.Value:
        """A new node in front of the attention; returns its output."""
        node = ir.node(op_type, inputs, attributes=attributes, name=self._name(op_type))
        node.outputs[0].name = self._name(op_type)
        self._graph.insert_before(self.node, node)
        return node.outputs[0]

    def after(self, op_type: str, *others: ir.Value, **attributes: Any) -> None:
        """Passes the attention's output through a new node, for all its readers."""
        output = self.node.outputs[0]
        node = ir.node(op_type, [output, *others], attributes=attributes, name=self._name(op_type))
        changed = node.outputs[0]
        changed.name, changed.type, changed.shape = self._name(op_type), output.type, output.shape
        output.replace_all_uses_with(changed, replace_graph_outputs=True)
        node.replace_input_with(0, output)
        self._graph.insert_after(self.node, node)
        if changed.is_graph_output():
            changed.name, output.name = output.name, changed.name

    @property
    def _graph(self) -> ir.Graph:
        graph = self.node.graph
        assert isinstance(graph, ir.Graph)
        return graph

    def _name(self, what: str) -> str:
        self._made += 1
        return f"{self.node.name}_mutant_{what}_{self._made}"


def rolled(site: Site, value: ir.Value, axis: int, by: int = 1) -> ir.Value:
    """The value with its slices along an axis moved, the last ones to the front."""
    head = site.before("Slice", [value, *_bounds(site, -by, 2**31, axis)])
    tail = site.before("Slice", [value, *_bounds(site, 0, -by, axis)])
    return site.before("Concat", [head, tail], axis=axis)


def _bounds(site: Site, start: int, end: int, axis: int) -> list[ir.Value]:
    return [site.constant(np.array([number], dtype=np.int64)) for number in (start, end, axis)]


def picked(site: Site, value: ir.Value, indices: Sequence[int], axis: int) -> ir.Value:
    """Slices of a value along an axis, in the order of `indices`."""
    return site.before("Gather", [value, site.constant(np.array(indices, np.int64))], axis=axis)


def head_channels(heads: Sequence[int], width: int) -> list[int]:
    """Channels of heads that lie side by side, `width` channels each."""
    return [head * width + channel for head in heads for channel in range(width)]
