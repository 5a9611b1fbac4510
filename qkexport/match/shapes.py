"""Sizes of every value of a graph: those written in the file, the rest derived from operators.

Exporters leave the shape of reshaped tensors empty when dimensions are dynamic. Here the integer
vectors that feed a `Reshape` are followed symbolically, so `Reshape(x, Concat(Shape(x)[:2], 16,
64))` has the sizes it says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import onnx_ir as ir

from qkexport.match.constants import Constants
from qkexport.match.sizes import ONE, Size, product

Sizes = tuple[Size, ...]
Vector = tuple[Size | None, ...]

_MAX_VECTOR: Final = 16  # longer integer tensors are data, not shapes
_HOLD_SIZES: Final = (  # others round, or wrap
    ir.DataType.INT64, ir.DataType.INT32, ir.DataType.FLOAT, ir.DataType.DOUBLE,
)  # fmt: skip


class Shapes:
    """Sizes and symbolic integer vectors of one graph, all derived once, in graph order.

    Args:
        graph: Where the values live.
        constants: Its constants.
    """

    def __init__(self, graph: ir.Graph, constants: Constants) -> None:
        self._constants = constants
        self._sizes: dict[ir.Value, Sizes | None] = {}
        self._vectors: dict[ir.Value, Vector | None] = {}
        self._names: dict[str, Size] = {}
        self._given = {
            dim.value
            for value in graph.inputs
            for dim in value.shape or ()
            if isinstance(dim, ir.SymbolicDim) and dim.value is not None
        }
        for node in graph:
            for value in node.outputs:
                self._sizes[value] = self._complete(value, _infer(self, node, value))
                vector = _vector(self, node)
                flat = vector is None or len(vector) == 1 or self.rank(value) in (None, 1)
                self._vectors[value] = vector if flat else None

    def sizes(self, value: ir.Value) -> Sizes | None:
        """Size of each axis; None where not even the rank is known."""
        if value not in self._sizes:
            self._sizes[value] = self._complete(value, None)
        sizes = self._sizes[value]
        return None if sizes is None else tuple(map(self._written_out, sizes))

    def rank(self, value: ir.Value) -> int | None:
        sizes = self.sizes(value)
        return None if sizes is None else len(sizes)

    def vector(self, value: ir.Value | None) -> Vector | None:
        """Elements of a short integer tensor, each a size or None where unknown or negative."""
        if value is None:
            return None
        if value not in self._vectors:
            self._vectors[value] = None
        known = self._vectors[value]
        if known is not None:
            return known
        array = self._constants.array(value)
        integers = self._constants.integers(value)
        if array is None or integers is None or len(integers) > _MAX_VECTOR:
            return None
        if array.ndim > 1 and len(integers) > 1:
            return None  # a matrix, which broadcasts and is cut in other ways
        return tuple(Size(item) if item >= 0 else None for item in integers)

    def integers(self, value: ir.Value | None) -> tuple[int, ...] | None:
        """Elements of an integer tensor that is constant, or made of sizes that are known."""
        found = self._constants.integers(value)
        if found is not None:
            return found
        vector = self.vector(value)
        if vector is None or any(size is None or size.known is None for size in vector):
            return None
        return tuple(size.count for size in vector if size is not None)

    def constants(self) -> Constants:
        return self._constants

    def _complete(self, value: ir.Value, inferred: Sizes | None) -> Sizes | None:
        """The declared shape, holes filled by inference and else by fresh symbols."""
        if value.shape is None:
            if value.const_value is not None:
                return tuple(Size(int(dim)) for dim in value.const_value.shape.numpy())
            return inferred
        declared = list(value.shape)
        if inferred is None or len(inferred) != len(declared):
            inferred = tuple(Size(1, (f"{value.name}@{i}",)) for i in range(len(declared)))
        pairs = zip(declared, inferred, strict=True)
        return tuple(self._joined(_declared(dim), size) for dim, size in pairs)

    def _joined(self, declared: Size | None, inferred: Size) -> Size:
        """One size from the written and the derived one, which are equal at run time.

        Tools that infer shapes write a fresh name where they lose track; from here on it stands for
        what was derived.
        """
        if declared is None:
            return inferred
        declared = self._written_out(declared)
        inferred = self._written_out(inferred)
        if declared == inferred or declared.known is not None:
            return declared
        pairs = [(declared, inferred), (inferred, declared)]
        if any("@" in symbol for symbol in inferred.symbols):
            pairs.reverse()  # a name made up here gives way first
        for name, other in pairs:
            if name.count == 1 and len(name.symbols) == 1 and self.name(name.symbols[0], other):
                return other
        return declared

    def name(self, symbol: str, size: Size) -> bool:
        """From here on a name stands for a size; False for names that the inputs give."""
        if symbol in self._given or symbol in self._names or symbol in size.symbols:
            return False
        self._names[symbol] = size
        return True

    def _written_out(self, size: Size) -> Size:
        while (simpler := size.replaced(self._names)) != size:
            size = simpler
        return size


def _declared(dim: int | ir.SymbolicDim) -> Size | None:
    if isinstance(dim, int):
        return Size(dim)
    return None if dim.value is None else Size.parse(dim.value)


def _infer(shapes: Shapes, node: ir.Node, value: ir.Value) -> Sizes | None:
    if node.domain not in ("", "ai.onnx") or not node.inputs or value is not node.outputs[0]:
        return None
    rule = _RULES.get(node.op_type)
    inputs = [None if item is None else shapes.sizes(item) for item in node.inputs]
    if rule is None or inputs[0] is None:
        return None
    return rule(shapes, node, [item for item in inputs if item is not None])


Rule = Callable[[Shapes, ir.Node, "list[Sizes]"], "Sizes | None"]


def _same(shapes: Shapes, node: ir.Node, inputs: list[Sizes]) -> Sizes | None:
    return inputs[0]


def broadcast(inputs: Sequence[Sizes]) -> Sizes | None:
    """Sizes of an elementwise result; None where two sizes cannot be proven to agree."""
    result: list[Size] = []
    rank = max(len(sizes) for sizes in inputs)
    for position in range(rank):
        found = {s[position - rank + len(s)] for s in inputs if position - rank + len(s) >= 0}
        larger = sorted(found - {ONE}, key=lambda size: len(size.symbols))
        # A known number beats a symbol: the symbol equals it or is one.
        if len(larger) > 1 and larger[0].symbols:
            return None
        result.append(larger[0] if larger else ONE)
    return tuple(result)


def _broadcast(shapes: Shapes, node: ir.Node, inputs: list[Sizes]) -> Sizes | None:
    return broadcast(inputs) if len(inputs) == len(node.inputs) else None


def _transpose(shapes: Shapes, node: ir.Node, inputs: list[Sizes]) -> Sizes | None:
    perm = node.attributes.get("perm")
    order = perm.as_ints() if perm else range(len(inputs[0]) - 1, -1, -1)
    return tuple(inputs[0][i] for i in order)


def _reshape(shapes: Shapes, node: ir.Node, inputs: list[Sizes]) -> Sizes | None:
    zero_copies = not (allow := node.attributes.get("allowzero")) or not allow.as_int()
    target = shapes.vector(node.inputs[1])
    literal = shapes.constants().integers(node.inputs[1])
    if target is None:
        return None
    filled = [
        inputs[0][i] if zero_copies and size == Size(0) and i < len(inputs[0]) else size
        for i, size in enumerate(target)
    ]
    holes = [i for i, size in enumerate(filled) if size is None]
    if literal is not None and any(item < -1 for item in literal):
        return None
    if len(holes) > 1:
        return None
    if holes:
        known = product(size for size in filled if size is not None)
        rest = product(inputs[0]).divided_by(known)
        if rest is None:
            rest = _part(shapes, node, product(inputs[0]), known)
        if rest is None:
            return None
        filled[holes[0]] = rest
    return tuple(size for size in filled if size is not None)


def _part(shapes: Shapes, node: ir.Node, total: Size, known: Size) -> Size | None:
    """What a reshape leaves of a size known by name: the name is so many times that."""
    if known.symbols or len(total.symbols) != 1 or not total.count or known.count % total.count:
        return None
    rest = Size(1, (f"{node.outputs[0].name}@rest",))
    times = Size(known.count // total.count)
    return rest if shapes.name(total.symbols[0], times * rest) else None


def _unsqueeze(shapes: Shapes, node: ir.Node, inputs: list[Sizes]) -> Sizes | None:
    axes = node_axes(shapes.constants(), node)
    if axes is None:
        return None
    rank = len(inputs[0]) + len(axes)
    places = {i % rank for i in axes}
    rest = iter(inputs[0])
    return tuple(ONE if i in places else next(rest) for i in range(rank))


def _squeeze(shapes: Shapes, node: ir.Node, inputs: list[Sizes]) -> Sizes | None:
    axes = node_axes(shapes.constants(), node)
    if axes is None:
        return None
    places = {i % len(inputs[0]) for i in axes}
    return tuple(size for i, size in enumerate(inputs[0]) if i not in places)


def _expand(shapes: Shapes, node: ir.Node, inputs: list[Sizes]) -> Sizes | None:
    target = shapes.vector(node.inputs[1])
    literal = shapes.constants().integers(node.inputs[1])
    if target is None:
        return None
    if literal is not None:
        target = tuple(ONE if item < 0 else Size(item) for item in literal)  # both keep it
    rank = max(len(target), len(inputs[0]))
    padded = (ONE,) * (rank - len(inputs[0])) + inputs[0]
    wanted: list[Size | None] = [ONE] * (rank - len(target))
    wanted.extend(target)
    return tuple(
        _expanded(size, goal) or Size(1, (f"{node.outputs[0].name}@{place}",))
        for place, (size, goal) in enumerate(zip(padded, wanted, strict=True))
    )


def _expanded(size: Size, goal: Size | None) -> Size | None:
    """The larger of two sizes; None where that is not known before run time."""
    if goal is None:
        return size if size.known not in (None, 1) else None
    if goal == ONE or (size.known is not None and size != ONE):
        return size
    return goal if size in (ONE, goal) or goal.known is not None else None


def _tile(shapes: Shapes, node: ir.Node, inputs: list[Sizes]) -> Sizes | None:
    repeats = shapes.constants().integers(node.inputs[1])
    if repeats is None or len(repeats) != len(inputs[0]):
        return None
    return tuple(size * Size(times) for size, times in zip(inputs[0], repeats, strict=True))


def _matmul(shapes: Shapes, node: ir.Node, inputs: list[Sizes]) -> Sizes | None:
    if len(inputs) != 2 or min(map(len, inputs)) < 2:
        return None
    leading = broadcast([inputs[0][:-2], inputs[1][:-2]]) if max(map(len, inputs)) > 2 else ()
    return None if leading is None else (*leading, inputs[0][-2], inputs[1][-1])


def _concat(shapes: Shapes, node: ir.Node, inputs: list[Sizes]) -> Sizes | None:
    if len(inputs) != len(node.inputs):
        return None
    place = node.attributes["axis"].as_int() % len(inputs[0])
    parts = [sizes[place] for sizes in inputs]
    total = Size(1, (f"{node.outputs[0].name}@{place}",))
    if all(part.known is not None for part in parts):
        total = Size(sum(part.count for part in parts))
    return (*inputs[0][:place], total, *inputs[0][place + 1 :])


def _slice(shapes: Shapes, node: ir.Node, inputs: list[Sizes]) -> Sizes | None:
    cuts = slice_ranges(shapes, node, inputs[0])
    if cuts is None:
        return None
    return tuple(size if i not in cuts else Size(len(cuts[i])) for i, size in enumerate(inputs[0]))


def _range(shapes: Shapes, node: ir.Node, inputs: list[Sizes]) -> Sizes | None:
    limit = shapes.vector(node.inputs[1])
    plain = [shapes.constants().scalar(node.inputs[i]) for i in (0, 2)] == [0.0, 1.0]
    if not plain or limit is None or len(limit) != 1 or limit[0] is None:
        return None
    return (limit[0],)


def _einsum(shapes: Shapes, node: ir.Node, inputs: list[Sizes]) -> Sizes | None:
    equation = node.attributes["equation"].as_string().replace(" ", "")
    if "->" not in equation or "." in equation or len(inputs) != len(node.inputs):
        return None
    operands, result = equation.split("->")
    sizes: dict[str, Size] = {}
    for letters, found in zip(operands.split(","), inputs, strict=True):
        if len(letters) != len(found):
            return None
        for letter, size in zip(letters, found, strict=True):
            if sizes.get(letter, ONE) == ONE:
                sizes[letter] = size
    return tuple(sizes[letter] for letter in result)


def _reduce(shapes: Shapes, node: ir.Node, inputs: list[Sizes]) -> Sizes | None:
    axes = node_axes(shapes.constants(), node)
    keep = node.attributes.get("keepdims")
    if axes is None or (keep is not None and not keep.as_int()):
        return None
    places = {i % len(inputs[0]) for i in axes}
    return tuple(ONE if i in places else size for i, size in enumerate(inputs[0]))


def node_axes(constants: Constants, node: ir.Node) -> tuple[int, ...] | None:
    """The `axes` of a node, an attribute in older opsets and an input in newer ones."""
    if "axes" in node.attributes:
        return tuple(node.attributes["axes"].as_ints())
    return constants.integers(node.inputs[1]) if len(node.inputs) > 1 else None


def slice_ranges(shapes: Shapes, node: ir.Node, sizes: Sizes) -> dict[int, range] | None:
    """Rows kept by a `Slice` with constant bounds on axes of known size, by axis."""
    fields = [shapes.integers(value) for value in node.inputs[1:]]
    given = [
        field for field, value in zip(fields, node.inputs[1:], strict=True) if value is not None
    ]
    if len(fields) < 2 or None in given:
        return None
    starts, ends = fields[0] or (), fields[1] or ()
    axes = fields[2] if len(fields) > 2 and fields[2] is not None else tuple(range(len(starts)))
    steps = fields[3] if len(fields) > 3 and fields[3] is not None else (1,) * len(starts)
    if len({len(starts), len(ends), len(axes), len(steps)}) > 1 or 0 in steps:
        return None  # not what the operator takes
    result: dict[int, range] = {}
    for start, end, place, step in zip(starts, ends, axes, steps, strict=True):
        length = sizes[place % len(sizes)].known
        if start == 0 and end >= 2**31 - 1 and step == 1:
            continue  # the whole axis, whatever its size
        if length is None:
            return None
        if step < 0:
            start = max(start, -length)  # Python would take nothing, the operator takes the first
        result[place % len(sizes)] = range(*slice(start, end, step).indices(length))
    return result


_RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(("Add", "Sub", "Mul", "Div", "Pow", "Where", "Max", "Min", "And", "Or",
                     "Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Mod"),
                    _broadcast),
    **dict.fromkeys(("Cast", "Identity", "Neg", "Sqrt", "Reciprocal", "Softmax", "Tanh", "Exp",
                     "Clip", "IsNaN", "Not", "Cos", "Sin", "Sigmoid", "Softplus", "Log", "Erf",
                     "Gelu", "Relu", "Abs", "Dropout", "LayerNormalization", "RMSNormalization",
                     "RotaryEmbedding", "Trilu", "ScatterND", "LpNormalization"), _same),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceL2", "ReduceSumSquare", "ReduceMax"),
                    _reduce),
    "Einsum": _einsum,
    "Range": _range,
    "Transpose": _transpose,
    "Reshape": _reshape,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Expand": _expand,
    "Tile": _tile,
    "MatMul": _matmul,
    "Concat": _concat,
    "Slice": _slice,
}  # fmt: skip


def _vector(shapes: Shapes, node: ir.Node) -> Vector | None:
    """Symbolic elements of what a node computes, where it computes with shapes."""
    if node.domain not in ("", "ai.onnx"):
        return None
    if node.op_type == "Shape" and node.inputs[0] is not None:
        sizes = shapes.sizes(node.inputs[0])
        if sizes is None:
            return None
        bounds = [
            node.attributes[name].as_int() if name in node.attributes else None
            for name in ("start", "end")
        ]
        return tuple(sizes[slice(*bounds)])
    if node.op_type == "Where":
        return _without_minus_one(shapes, node)
    vectors = [shapes.vector(value) for value in node.inputs]
    if not vectors or vectors[0] is None or len(vectors[0]) > _MAX_VECTOR:
        return None
    known = [vector for vector in vectors if vector is not None]
    if node.op_type in ("Squeeze", "Unsqueeze", "Cast", "Identity", "Reshape"):
        return known[0] if _stays_vector(shapes, node, len(known[0])) else None
    if node.op_type == "Concat" and len(known) == len(vectors):
        return tuple(itertools.chain.from_iterable(known))
    if node.op_type in ("Slice", "Gather"):
        return _selected(shapes, node, known[0])
    if node.op_type in ("Mul", "Div") and len(known) == len(vectors) == 2:
        return tuple(_arithmetic(node.op_type, known[0], known[1]))
    return None


def _stays_vector(shapes: Shapes, node: ir.Node, length: int) -> bool:
    """Whether a vector is still one, or a single element, of the same numbers."""
    if node.op_type == "Cast":
        return node.attributes["to"].as_int() in _HOLD_SIZES
    if length == 1 or node.op_type in ("Squeeze", "Identity"):
        return True
    return node.op_type == "Reshape" and len(shapes.vector(node.inputs[1]) or ()) == 1


def _without_minus_one(shapes: Shapes, node: ir.Node) -> Vector | None:
    """Where(Equal(v, -1), 1, v), as expand is written: no size is -1, so it is v."""
    condition, _, chosen = node.inputs
    equal = None if condition is None else condition.producer()
    if equal is None or equal.op_type != "Equal" or equal.inputs[0] is not chosen:
        return None
    others = shapes.constants().integers(equal.inputs[1])
    sizes = shapes.vector(chosen)
    if others is None or any(other != -1 for other in others) or sizes is None:
        return None
    return None if None in sizes else sizes


def _selected(shapes: Shapes, node: ir.Node, items: Vector) -> Vector | None:
    if node.op_type == "Gather":
        places = shapes.integers(node.inputs[1])
        array = shapes.constants().array(node.inputs[1])
        if array is not None and array.ndim > 1 and array.size > 1:
            return None  # the result has as many axes
        if places is None or any(not -len(items) <= i < len(items) for i in places):
            return None
        return tuple(items[i] for i in places)
    cuts = slice_ranges(shapes, node, (Size(len(items)),))
    if cuts is None:
        return None
    return items if 0 not in cuts else tuple(items[i] for i in cuts[0])


def _arithmetic(op_type: str, left: Vector, right: Vector) -> Iterator[Size | None]:
    """Of vectors of one length, or of a vector and a single element."""
    if len(left) == 1:
        left = left * len(right)
    if len(right) == 1:
        right = right * len(left)
    for a, b in zip(left, right, strict=False):
        if a is None or b is None:
            yield None
        else:
            yield a * b if op_type == "Mul" else a.divided_by(b)
