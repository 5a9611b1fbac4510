"""Evaluates an ONNX graph in PyTorch, in its own types or in float64 throughout."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

import qkexport.interpret.attention
import qkexport.interpret.elementwise
import qkexport.interpret.indexing
import qkexport.interpret.matrix
import qkexport.interpret.normalizations
import qkexport.interpret.reductions
import qkexport.interpret.shapes  # noqa: F401  each registers its operators
from qkexport.errors import QkexportError, UnsupportedModelError
from qkexport.interpret.attention import qk_norm_attention
from qkexport.interpret.blockwise import wide_matmul
from qkexport.interpret.call import EXACT, OPERATORS, Call
from qkexport.interpret.fallback import evaluate_by_onnx
from qkexport.interpret.tensors import to_torch
from qkexport.spec import OP_DOMAIN, OP_TYPE

if TYPE_CHECKING:
    import onnx_ir as ir

# Called with every value a node makes; what it returns is used instead.
Tap = Callable[["ir.Value", torch.Tensor], torch.Tensor]
_NARROW: Final = (torch.float32, torch.float16, torch.bfloat16)
_EMPTY_BODY: Final = "its body would have to be inlined first"


class Interpreter:
    """Evaluates the graph of one model.

    Weights stay where the model keeps them and are widened one at a time, when a node asks for
    them; values are dropped after their last use.

    Args:
        model: The model; not changed. QKNormAttention is evaluated by the reference, whatever
            body a model-local function gives it; other functions by their bodies.
        exact: Every floating type the graph asks for is float64.
    """

    def __init__(self, model: ir.Model, *, exact: bool) -> None:
        self._model = model
        self._exact = exact
        self._opsets = model.opset_imports

    def run(
        self, inputs: Mapping[str, torch.Tensor], tap: Tap | None = None
    ) -> dict[str, torch.Tensor]:
        """Evaluates the model.

        Args:
            inputs: By name, in the model's types; widened when exact.
            tap: Sees, and may replace, each value that a node of the main graph makes.

        Returns:
            Outputs by name.

        Raises:
            UnsupportedModelError: A node has no known evaluation, or fails.
        """
        graph = self._model.graph
        scope = _Scope(graph, self._exact, {})
        for value in graph.inputs:
            given = inputs.get(value.name or "")
            if given is not None:
                scope.bind(value, self._widened(given))
        with torch.no_grad():
            self._run_nodes(graph, scope, tap)
        return {str(value.name): scope.read(value) for value in graph.outputs}

    def _widened(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(EXACT) if self._exact and x.dtype in _NARROW else x

    def _run_nodes(self, graph: ir.Graph | ir.Function, scope: _Scope, tap: Tap | None) -> None:
        for node in graph:
            with _located(node):
                results = self._run_node(node, scope)
            for value, result in zip(node.outputs, results, strict=False):
                if result is not None:
                    checked = self._checked(node, result)
                    scope.bind(value, checked if tap is None else tap(value, checked))
            scope.release(node)

    def _checked(self, node: ir.Node, result: torch.Tensor) -> torch.Tensor:
        if self._exact and result.dtype in _NARROW:
            message = f"the oracle must be float64 throughout, got {result.dtype} at {node.name}"
            raise AssertionError(message)
        return result

    def _run_node(self, node: ir.Node, scope: _Scope) -> Sequence[torch.Tensor | None]:
        if self._exact and node.op_type == "Gather" and node.domain == "":
            return self._look_up(node, scope)
        if self._exact and node.op_type == "MatMul" and node.domain == "":
            product = self._multiply_weight(node, scope)
            if product is not None:
                return (product,)
        given = [None if value is None else scope.read(value) for value in node.inputs]
        function = self._model.functions.get(node.op_identifier())
        if node.domain == OP_DOMAIN and node.op_type == OP_TYPE:
            return qk_norm_attention(self._call(node), *given)
        if function is not None:
            return self._run_function(function, node, given)
        if node.domain not in ("", "ai.onnx"):
            message = f"Node {node.name} must be a known operator, got {_identity(node)}."
            raise UnsupportedModelError(message)
        if node.op_type == "If":
            return self._run_branch(node, scope, given)
        evaluate = OPERATORS.get(node.op_type)
        if evaluate is None:
            results = evaluate_by_onnx(self._call(node), given)
            return [None if x is None else self._widened(x) for x in results]
        result = evaluate(self._call(node), *given)
        return (result,) if isinstance(result, torch.Tensor) else result

    def _look_up(self, node: ir.Node, scope: _Scope) -> Sequence[torch.Tensor | None]:
        """Widens the rows that are read, not the table."""
        table, indices = node.inputs
        assert table is not None
        assert indices is not None
        rows = scope.read(table, widen=False)
        picked = OPERATORS["Gather"](self._call(node), rows, scope.read(indices))
        assert isinstance(picked, torch.Tensor)
        return (self._widened(picked),)

    def _multiply_weight(self, node: ir.Node, scope: _Scope) -> torch.Tensor | None:
        """The product with a weight `[K,N]`, widened block by block; None for other products."""
        left, right = node.inputs
        assert left is not None
        assert right is not None
        if right.const_value is None or len(right.const_value.shape) != 2:
            return None
        weight = scope.read(right, widen=False)
        x = scope.read(left)
        return wide_matmul(x, weight, self._widened) if weight.dtype in _NARROW else None

    def _call(self, node: ir.Node) -> Call:
        return Call(node, self._opsets.get(node.domain, 1), self._exact)

    def _run_branch(
        self, node: ir.Node, scope: _Scope, given: Sequence[torch.Tensor | None]
    ) -> Sequence[torch.Tensor | None]:
        condition = given[0]
        assert condition is not None
        branch = node.attributes["then_branch" if bool(condition) else "else_branch"].as_graph()
        inner = _Scope(branch, self._exact, scope.values)
        self._run_nodes(branch, inner, None)
        return [inner.read(value) for value in branch.outputs]

    def _run_function(
        self, function: ir.Function, node: ir.Node, given: Sequence[torch.Tensor | None]
    ) -> Sequence[torch.Tensor | None]:
        if function.attributes:
            message = f"Function {function.name} must have no attributes, got {node.name}."
            raise UnsupportedModelError(message, note=f"{_EMPTY_BODY}.")
        inner = _Scope(function, self._exact, {})
        for value, tensor in zip(function.inputs, given, strict=False):
            if tensor is not None:
                inner.bind(value, tensor)
        outer = self._opsets
        self._opsets = {**outer, **function.opset_imports}
        try:
            self._run_nodes(function, inner, None)
        finally:
            self._opsets = outer
        return [inner.read(value) for value in function.outputs]


class _Scope:
    """Values by identity while a graph is evaluated."""

    def __init__(
        self, graph: ir.Graph | ir.Function, exact: bool, outer: Mapping[Any, torch.Tensor]
    ) -> None:
        self.values: dict[Any, torch.Tensor] = dict(outer)
        self._exact = exact
        self._uses = Counter(value for node in graph for value in node.inputs if value is not None)
        self._kept = {*graph.outputs, *outer}
        # a value that a subgraph reads lives as long as the node that holds the subgraph
        for node in graph.all_nodes() if hasattr(graph, "all_nodes") else ():
            if node.graph is not graph:
                self._kept.update(value for value in node.inputs if value is not None)

    def bind(self, value: Any, tensor: torch.Tensor) -> None:
        self.values[value] = tensor

    def read(self, value: ir.Value, *, widen: bool = True) -> torch.Tensor:
        tensor = self.values.get(value)
        if tensor is not None:
            return tensor
        if value.const_value is None:
            message = f"Value {value.name} must have been computed, got none."
            raise UnsupportedModelError(message)
        weight = to_torch(value.const_value)
        return weight.to(EXACT) if self._exact and widen and weight.dtype in _NARROW else weight

    def release(self, node: ir.Node) -> None:
        """Drops what this node was the last to use, and what nobody uses."""
        for value in node.inputs:
            if value is None:
                continue
            self._uses[value] -= 1
            if self._uses[value] <= 0 and value not in self._kept:
                self.values.pop(value, None)
        for value in node.outputs:
            if not self._uses[value] and value not in self._kept:
                self.values.pop(value, None)


def _identity(node: ir.Node) -> str:
    return f"{node.domain}::{node.op_type}"


@contextlib.contextmanager
def _located(node: ir.Node) -> Iterator[None]:
    """Errors inside an operator's evaluation name the node."""
    try:
        yield
    except (QkexportError, AssertionError):
        raise
    except Exception as error:
        text = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        message = f"Node {node.name} ({node.op_type}) must be computable, got {text}."
        raise UnsupportedModelError(message) from error
