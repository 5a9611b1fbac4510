"""Random graphs of position numbers and conditions, computed next to the graph they become.

Every node is evaluated at all `SIZES` when it is drawn; one that fails at any of them is left out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = npt.NDArray[Any]

SIZES: Final = ((2, 3), (1, 1), (3, 6), (2, 0), (4, 2))  # batch, tokens
OPSET: Final = 20
_END: Final = 2**63 - 1


class Drawing:
    """A graph with inputs ids [batch, tokens] int64 and flags [batch, tokens] bool.

    Attributes:
        arrays: Each value at every one of `SIZES`.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        data = np.random.default_rng(seed)
        self.arrays: dict[str, tuple[Array, ...]] = {
            "ids": tuple(data.integers(-2, 3, size) for size in SIZES),
            "flags": tuple(data.random(size) < 0.5 for size in SIZES),
        }
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        array = np.asarray(value, dtype)
        name = f"c{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        self.arrays[name] = (array,) * len(SIZES)
        return name

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str | None:
        """The node's result; None where it does not run at every size."""
        name = f"v{len(self.nodes)}"
        node = helper.make_node(op_type, list(inputs), [name], **attributes)
        model = _model([node], inputs, name)
        results = []
        try:
            evaluator = ReferenceEvaluator(model)
            for place in range(len(SIZES)):
                feeds: dict[str, Any] = {item: self.arrays[item][place] for item in inputs}
                results.append(np.asarray(next(iter(evaluator.run(None, feeds)))))
        except Exception:  # whatever the evaluator says to a node that is not valid
            return None
        if max(result.size for result in results) > 400:
            return None
        self.nodes.append(node)
        self.arrays[name] = tuple(results)
        return name

    def any(self, *kinds: str, rank: int | None = None) -> str:
        """A value of one of these kinds of dtype."""
        names = [
            name for name, (array, *_) in self.arrays.items()
            if array.dtype.kind in kinds and rank in (None, array.ndim)
        ]  # fmt: skip
        return self.rng.choice(names[-12:] if self.rng.random() < 0.7 else names)

    def model(self) -> onnx.ModelProto:
        outputs = [node.output[0] for node in self.nodes]
        inputs = [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "tokens"]),
            helper.make_tensor_value_info("flags", TensorProto.BOOL, ["batch", "tokens"]),
        ]
        results = [onnx.ValueInfoProto(name=name) for name in outputs[-1:]]
        graph = helper.make_graph(self.nodes, "numbers", inputs, results, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 10
        return model


def _model(nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], output: str) -> onnx.ModelProto:
    infos = [onnx.ValueInfoProto(name=name) for name in dict.fromkeys(inputs)]
    graph = helper.make_graph(nodes, "one", infos, [onnx.ValueInfoProto(name=output)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


def draw(seed: int, steps: int = 40) -> Drawing:
    """A random graph, which starts from sizes and position numbers."""
    drawing = Drawing(seed)
    lengths = [drawing.add("Shape", "ids", start=i, end=i + 1) for i in (0, 1)]
    zero, one = drawing.constant(0), drawing.constant(1)
    for length in lengths:
        assert length is not None
        scalar = drawing.add("Squeeze", length)
        assert scalar is not None
        drawing.add("Range", zero, scalar, one)
    for _ in range(steps):
        drawing.rng.choice(_STEPS)(drawing)
    return drawing


def _arithmetic(d: Drawing) -> None:
    d.add(d.rng.choice(("Add", "Sub", "Sub", "Max", "Min")), d.any("i"), d.any("i"))


def _by_number(d: Drawing) -> None:
    number = d.constant(d.rng.randint(-2, 2))
    d.add(d.rng.choice(("Add", "Sub", "Mul")), *d.rng.sample([d.any("i"), number], 2))


def _negative(d: Drawing) -> None:
    d.add("Neg", d.any("i"))


def _comparison(d: Drawing) -> None:
    names = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
    other = d.any("i") if d.rng.random() < 0.5 else d.constant(d.rng.randint(-2, 2))
    d.add(d.rng.choice(names), *d.rng.sample([d.any("i"), other], 2))


def _logic(d: Drawing) -> None:
    d.add(d.rng.choice(("And", "Or", "Xor", "Equal")), d.any("b"), d.any("b"))


def _not(d: Drawing) -> None:
    d.add("Not", d.any("b"))


def _cast(d: Drawing) -> None:
    d.add("Cast", d.any("i", "b"), to=d.rng.choice((TensorProto.INT64, TensorProto.BOOL)))


def _where(d: Drawing) -> None:
    d.add("Where", d.any("b"), d.any("i"), d.any("i"))


def _range(d: Drawing) -> None:
    start, step = d.constant(d.rng.randint(-1, 2)), d.constant(d.rng.choice((1, 1, 2, -1)))
    d.add("Range", start, d.any("i", rank=0), step)


def _unsqueeze(d: Drawing) -> None:
    d.add("Unsqueeze", d.any("i", "b"), d.constant([d.rng.randint(-2, 1)]))


def _squeeze(d: Drawing) -> None:
    d.add("Squeeze", d.any("i", "b"), d.constant([d.rng.randint(-2, 1)]))


def _transpose(d: Drawing) -> None:
    d.add("Transpose", d.any("i", "b"))


def _flattened(d: Drawing) -> None:
    shape = d.rng.choice(([-1], [1, -1], [-1, 1], [0, -1], [0, 1, -1]))
    d.add("Reshape", d.any("i", "b"), d.constant(shape))


def _expand(d: Drawing) -> None:
    shape = d.add("Shape", d.any("i", "b"))
    if shape is not None:
        d.add("Expand", d.any("i", "b"), shape)


def _filled(d: Drawing) -> None:
    shape = d.add("Shape", d.any("i", "b"))
    if shape is not None:
        value = numpy_helper.from_array(np.array([d.rng.randint(0, 1)], np.int64))
        d.add("ConstantOfShape", shape, value=value)


def _slice(d: Drawing) -> None:
    def bound(*numbers: int) -> str:
        name = d.any("i", rank=1)
        single = all(array.shape == (1,) for array in d.arrays[name])
        return name if single and d.rng.random() < 0.5 else d.constant([d.rng.choice(numbers)])

    places = d.constant([d.rng.choice((0, 1, -1))]), d.constant([d.rng.choice((1, 1, 1, 2, -1))])
    d.add("Slice", d.any("i", "b"), bound(0, 0, 1, 2, -1), bound(_END, _END, 1, 2, -1), *places)


def _concat(d: Drawing) -> None:
    parts = [d.any("i") for _ in range(d.rng.choice((2, 2, 3)))]
    d.add("Concat", *parts, axis=d.rng.choice((0, -1, -1)))


def _prefix(d: Drawing) -> None:
    """A first element before the others, as differences of neighbours need it."""
    numbers, axis = d.any("i"), d.constant([-1])
    first = d.add("Slice", numbers, d.constant([0]), d.constant([1]), axis)
    earlier = first and d.add("Sub", first, d.constant(d.rng.choice((1, 1, 1, 0, 2))))
    joined = earlier and d.add("Concat", earlier, numbers, axis=-1)
    last = joined and d.add("Slice", joined, d.constant([1]), d.constant([_END]), axis)
    before = joined and d.add("Slice", joined, d.constant([0]), d.constant([-1]), axis)
    if last and before:
        d.add("Sub", last, before)


def _gather(d: Drawing) -> None:
    drawn = d.rng.choice((-1, 0, [-1], [-1, 0], [[0]]))
    indices = d.constant(drawn) if d.rng.random() < 0.5 else d.any("i")
    d.add("Gather", d.any("i", "i", "b"), indices, axis=d.rng.choice((0, -1)))


def _points(d: Drawing) -> None:
    parts = [d.add("Unsqueeze", d.any("i"), d.constant([-1])) for _ in range(2)]
    names = [part for part in parts if part is not None]
    indices = d.add("Concat", *names, axis=-1) if names else None
    if indices is not None:
        d.add("GatherND", d.any("i", "b"), indices)


def _running_sum(d: Drawing) -> None:
    flags = {name: d.rng.randint(0, 1) for name in ("exclusive", "reverse")}
    numbers = d.any("i")
    if d.arrays[numbers][0].ndim:
        d.add("CumSum", numbers, d.constant(d.rng.choice((0, -1))), **flags)


_STEPS: Final[tuple[Callable[[Drawing], None], ...]] = (
    _arithmetic, _by_number, _negative, _comparison, _comparison, _logic, _not, _cast, _where,
    _range, _unsqueeze, _unsqueeze, _squeeze, _transpose, _flattened, _expand, _expand, _filled,
    _slice, _slice, _concat, _prefix, _prefix, _gather, _points, _running_sum, _running_sum,
)  # fmt: skip
