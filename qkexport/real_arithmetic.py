"""Complex arithmetic of an exported program written as real arithmetic.

Rotary embeddings are often complex products (Llama 4, Lumina 2, Z-Image, Qwen-Image); ONNX Runtime
and TensorRT have no complex tensors and torch.onnx translates few of their operators. Every complex
value becomes two real ones of its shape:

    (a + ib) * (c + id)     a*c - b*d,  a*d + b*c
    view_as_complex(x)      x[..., 0],  x[..., 1]
    view_as_real(z)         stack([re, im], -1)
    polar(r, t)             r*cos(t),   r*sin(t)
    exp(z)                  exp(re)*cos(im),  exp(re)*sin(im)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import torch
from torch.export import ExportedProgram, default_decompositions
from torch.export.graph_signature import InputKind
from torch.fx import Node
from torch.fx.node import map_arg

from qkexport.errors import UnsupportedModelError

_OPS: Final = torch.ops.aten
_META: Final = ("stack_trace", "nn_module_stack", "source_fn_stack")

Parts: TypeAlias = tuple[Node, Node]
"""Real and imaginary part of one complex value, or of a list of them."""


def in_real_arithmetic(program: ExportedProgram) -> ExportedProgram:
    """The program without complex tensors, or the program itself where it has none.

    Args:
        program: As torch.export makes it. Inputs and outputs must be real; parameters, buffers and
            constants may be complex.

    Returns:
        A program that computes the same, in ATen operators that update nothing in place.

    Raises:
        UnsupportedModelError: An input or output is complex, or an operator on complex numbers has
            no real form here.
    """
    if not any(map(_touches_complex, program.graph.nodes)):
        return program
    composite = {node.target for node in program.graph.nodes if _touches_complex(node)}
    table = default_decompositions()
    rules = {target: table[target] for target in composite if _is_composite(target, table)}
    return _Rewriting(program.run_decompositions(rules)).finished()


def _is_composite(target: Any, table: Any) -> bool:
    is_op = isinstance(target, torch._ops.OpOverload)
    return is_op and target._can_decompose() and target in table


def _is_complex(node: Node) -> bool:
    value = node.meta.get("val")
    items = value if isinstance(value, list | tuple) else (value,)
    return any(isinstance(item, torch.Tensor) and item.is_complex() for item in items)


def _touches_complex(node: Node) -> bool:
    return _is_complex(node) or any(map(_is_complex, node.all_input_nodes))


class _Rewriting:
    """Replaces complex nodes one after another, in the order of the graph."""

    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.graph = program.graph
        self.signature = program.graph_signature
        self.state = dict(program.state_dict)
        self.constants = dict(program.constants)
        self.parts: dict[Node, Parts] = {}
        self.place: Node

    def finished(self) -> ExportedProgram:
        replaced = [node for node in self.graph.nodes if _touches_complex(node)]
        for node in replaced:
            self.place = node
            self._replace(node)
        for node in reversed(replaced):
            if node.op == "call_function":
                self.graph.erase_node(node)
        program = self.program
        program.graph_module.recompile()
        return ExportedProgram(
            program.graph_module,
            self.graph,
            self.signature,
            self.state,
            program.range_constraints,
            program.module_call_graph,
            program.example_inputs,
            self.constants,
            verifiers=program.verifiers,
        )

    def _replace(self, node: Node) -> None:
        if node.op == "placeholder":
            self.parts[node] = self._stored(node)
            return
        if node.op == "output":
            raise _unsupported("return real tensors", "a complex output")
        if node.target in _CHECKS:
            return
        rule = _RULES.get(node.target, _linear if node.target in _LINEAR else None)
        if rule is None:
            raise _unsupported(
                "use complex numbers in ways that have a real form", str(node.target)
            )
        result = rule(self, *node.args, **node.kwargs)
        if isinstance(result, tuple):
            self.parts[node] = result
            return
        node.replace_all_uses_with(result)
        self.signature.replace_all_uses(node.name, result.name)

    def _stored(self, node: Node) -> Parts:
        """A parameter, buffer or constant is stored as [..., 2] from now on."""
        spec = next(s for s in self.signature.input_specs if s.arg.name == node.name)
        if spec.kind is InputKind.USER_INPUT or spec.target is None:
            raise _unsupported("take real tensors", f"complex input {node.name}")
        for store in (self.state, self.constants):
            value = store.get(spec.target)
            if isinstance(value, torch.Tensor) and value.is_complex():
                store[spec.target] = torch.view_as_real(value.detach().resolve_conj()).contiguous()
        with node.meta["val"].fake_mode:
            node.meta["val"] = torch.view_as_real(node.meta["val"]).contiguous()
        self.place = node.next
        while self.place.op == "placeholder":
            self.place = self.place.next
        return self.emit(_OPS.select.int, node, -1, 0), self.emit(_OPS.select.int, node, -1, 1)

    def emit(self, op: Any, *args: Any, **kwargs: Any) -> Node:
        """A new node before the one being replaced, with the value it has while tracing."""
        with self.graph.inserting_before(self.place):
            node: Node = self.graph.call_function(op, args, kwargs)
        node.meta.update({key: self.place.meta[key] for key in _META if key in self.place.meta})
        values = map_arg((args, kwargs), lambda item: item.meta["val"])
        mode = torch._guards.detect_fake_mode(values)
        with mode if mode is not None else torch.no_grad():
            node.meta["val"] = op(*values[0], **values[1])
        return node

    def split(self, item: Any) -> tuple[Any, Any]:
        """Both parts of an operand; the imaginary part of a real one is None."""
        if isinstance(item, Node):
            return self.parts.get(item, (item, None))
        if isinstance(item, complex):
            return item.real, item.imag
        return item, None

    def is_complex(self, item: Any) -> bool:
        return isinstance(item, complex) or (isinstance(item, Node) and item in self.parts)


def _unsupported(rule: str, got: str) -> UnsupportedModelError:
    message = f"Model must {rule}, got {got}."
    return UnsupportedModelError(message, hint="compute with real and imaginary parts there.")


def _linear(rw: _Rewriting, *args: Any, **kwargs: Any) -> Parts:
    """f(a + ib) = f(a) + i f(b): what moves values, or sums them."""
    target = rw.place.target
    real = map_arg(args, lambda item: rw.split(item)[0])
    imaginary = map_arg(args, lambda item: _imaginary(rw, item))
    return rw.emit(target, *real, **kwargs), rw.emit(target, *imaginary, **kwargs)


def _imaginary(rw: _Rewriting, item: Any) -> Any:
    """The imaginary part of an operand: zeros for a real one, but indices stay."""
    real, imaginary = rw.split(item)
    if imaginary is not None:
        return imaginary
    if not isinstance(item, Node):
        return 0.0
    value = item.meta.get("val")
    among = isinstance(value, torch.Tensor) and value.is_floating_point()
    return rw.emit(_OPS.zeros_like.default, real) if among else item


def _as_complex(rw: _Rewriting, x: Node) -> Parts:
    return rw.emit(_OPS.select.int, x, -1, 0), rw.emit(_OPS.select.int, x, -1, 1)


def _as_real(rw: _Rewriting, z: Node) -> Node:
    parts = [rw.emit(_OPS.unsqueeze.default, part, -1) for part in rw.parts[z]]
    return rw.emit(_OPS.cat.default, parts, -1)


def _polar(rw: _Rewriting, length: Node, angle: Node) -> Parts:
    turned = [rw.emit(op, angle) for op in (_OPS.cos.default, _OPS.sin.default)]
    cos, sin = (rw.emit(_OPS.mul.Tensor, length, part) for part in turned)
    return cos, sin


def _exp(rw: _Rewriting, z: Node) -> Parts:
    real, imaginary = rw.parts[z]
    return _polar(rw, rw.emit(_OPS.exp.default, real), imaginary)


def _abs(rw: _Rewriting, z: Node) -> Node:
    real, imaginary = rw.parts[z]
    return rw.emit(_OPS.hypot.default, real, imaginary)


def _size(rw: _Rewriting, z: Node, axis: int) -> Node:
    return rw.emit(_OPS.sym_size.int, rw.parts[z][0], axis)


def _conjugate(rw: _Rewriting, z: Node) -> Parts:
    real, imaginary = rw.parts[z]
    return real, rw.emit(_OPS.neg.default, imaginary)


def _real(rw: _Rewriting, z: Node) -> Node:
    return rw.parts[z][0]


def _imag(rw: _Rewriting, z: Node) -> Node:
    return rw.parts[z][1]


def _complex(rw: _Rewriting, real: Node, imaginary: Node) -> Parts:
    return real, imaginary


def _multiply(rw: _Rewriting, left: Any, right: Any) -> Parts:
    (a, b), (c, d) = rw.split(left), rw.split(right)

    def times(x: Any, y: Any) -> Node:
        pair = (x, y) if isinstance(x, Node) else (y, x)  # a number comes second
        return rw.emit(_OPS.mul.Tensor, *pair)

    if b is None:
        return times(a, c), times(a, d)
    if d is None:
        return times(a, c), times(b, c)
    real = rw.emit(_OPS.sub.Tensor, times(a, c), times(b, d))
    return real, rw.emit(_OPS.add.Tensor, times(a, d), times(b, c))


def _divide(rw: _Rewriting, left: Any, right: Any) -> Parts:
    if rw.is_complex(right):
        raise _unsupported("divide by real numbers", "a complex divisor")
    real, imaginary = (rw.emit(_OPS.div.Tensor, part, right) for part in rw.split(left))
    return real, imaginary


def _sum(rw: _Rewriting, left: Any, right: Any, **kwargs: Any) -> Parts:
    target = rw.place.target
    real = rw.emit(target, rw.split(left)[0], rw.split(right)[0], **kwargs)
    return real, rw.emit(target, _imaginary(rw, left), _imaginary(rw, right), **kwargs)


_REAL_TYPES: Final = {torch.complex64: torch.float32, torch.complex128: torch.float64}


def _copy(rw: _Rewriting, x: Node, dtype: torch.dtype | None = None, **kwargs: Any) -> Any:
    """A change of type: real to complex, complex to complex, or complex to its real part."""
    if dtype is not None:
        kwargs["dtype"] = _REAL_TYPES.get(dtype, dtype)
    real, imaginary = rw.split(x)
    copied = rw.emit(_OPS._to_copy.default, real, **kwargs)
    if dtype is not None and dtype not in _REAL_TYPES:
        return copied
    if imaginary is None:
        return copied, rw.emit(_OPS.zeros_like.default, copied)
    return copied, rw.emit(_OPS._to_copy.default, imaginary, **kwargs)


Rule: TypeAlias = Callable[..., Parts | Node]
_RULES: Final[dict[Any, Rule]] = {
    _OPS.view_as_complex.default: _as_complex,
    _OPS.view_as_real.default: _as_real,
    _OPS.polar.default: _polar,
    _OPS.complex.default: _complex,
    _OPS.exp.default: _exp,
    _OPS.abs.default: _abs,
    _OPS.sym_size.int: _size,
    _OPS._conj.default: _conjugate,
    _OPS._conj_physical.default: _conjugate,
    _OPS.real.default: _real,
    _OPS.imag.default: _imag,
    _OPS.mul.Tensor: _multiply,
    _OPS.mul.Scalar: _multiply,
    _OPS.div.Tensor: _divide,
    _OPS.div.Scalar: _divide,
    _OPS.add.Tensor: _sum,
    _OPS.sub.Tensor: _sum,
    _OPS._to_copy.default: _copy,
}

_LINEAR: Final = frozenset(
    {
        operator.getitem, _OPS.alias.default, _OPS.cat.default, _OPS.clone.default,
        _OPS.detach.default, _OPS.expand.default, _OPS.flip.default, _OPS.gather.default,
        _OPS.index.Tensor, _OPS.index_select.default, _OPS.mean.dim, _OPS.neg.default,
        _OPS.permute.default, _OPS.repeat.default, _OPS.roll.default, _OPS.select.int,
        _OPS.slice.Tensor, _OPS.split.Tensor, _OPS.split_with_sizes.default, _OPS.squeeze.default,
        _OPS.squeeze.dim, _OPS.squeeze.dims, _OPS.stack.default, _OPS.sum.dim_IntList,
        _OPS.transpose.int, _OPS.unbind.int, _OPS.unsqueeze.default, _OPS.view.default,
        _OPS._unsafe_view.default,
    }
)  # fmt: skip

_CHECKS: Final = frozenset({_OPS._assert_tensor_metadata.default})
