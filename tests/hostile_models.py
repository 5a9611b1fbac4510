"""ONNX files that nobody exports by accident: each would hang, exhaust or mislead a reader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import TensorProto, helper

_HUGE = 2**40


def _value(name: str, shape: Sequence[int] | None, dtype: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


def _model(
    nodes: Sequence[onnx.NodeProto],
    *,
    shape: Sequence[int] = (1, 4),
    weights: Sequence[TensorProto] = (),
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    """x -> nodes -> y."""
    graph = helper.make_graph(nodes, "g", [_value("x", shape)], [_value("y", None)], list(weights))
    opsets = [helper.make_opsetid(*pair) for pair in (("", 23), ("qkexport", 1), ("loc", 1))]
    return helper.make_model(graph, opset_imports=opsets, functions=list(functions))


def _softmax(source: str) -> onnx.NodeProto:
    return helper.make_node("Softmax", [source], ["y"])


def _weight(dims: Sequence[int], data: bytes = b"1234") -> TensorProto:
    return TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=data)


def _typed(data_type: int) -> TensorProto:
    return TensorProto(name="w", data_type=data_type, dims=[1], raw_data=b"1234")


def external(location: str, offset: int = 0, length: int = 16) -> TensorProto:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def with_weight(weight: TensorProto) -> onnx.ModelProto:
    return _model([helper.make_node("Mul", ["x", "w"], ["z"]), _softmax("z")], weights=[weight])


def with_constant(weight: TensorProto) -> onnx.ModelProto:
    constant = helper.make_node("Constant", [], ["w"], value=weight)
    return _model([constant, helper.make_node("Mul", ["x", "w"], ["z"]), _softmax("z")])


def in_a_branch(weight: TensorProto) -> onnx.ModelProto:
    node = helper.make_node("Identity", ["w"], ["o"])
    branch = helper.make_graph([node], "s", [], [_value("o", [4])], [weight])
    chosen = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    cast = helper.make_node("Cast", ["x"], ["c"], to=TensorProto.BOOL)
    return _model([cast, chosen], shape=())


def _cycle() -> onnx.ModelProto:
    first = helper.make_node("Add", ["x", "b"], ["a"])
    return _model([first, helper.make_node("Add", ["a", "x"], ["b"]), _softmax("b")])


def _recursion() -> onnx.ModelProto:
    call = helper.make_node("F", ["a"], ["b"], domain="loc")
    function = helper.make_function(
        "loc", "F", ["a"], ["b"], [call], [helper.make_opsetid("loc", 1)]
    )
    return _model([helper.make_node("F", ["x"], ["y"], domain="loc")], functions=[function])


def doubling_functions(levels: int) -> onnx.ModelProto:
    """Each function calls the next one twice: 2^levels nodes from a small file."""
    opsets = [helper.make_opsetid("loc", 1), helper.make_opsetid("", 23)]
    functions = []
    for level in range(levels):
        names = [f"F{level + 1}"] * 2 if level < levels - 1 else ["Identity"]
        wires = ["a", "m", "b"] if len(names) == 2 else ["a", "b"]
        nodes = [
            helper.make_node(
                name, [wires[i]], [wires[i + 1]], domain="loc" if name[0] == "F" else ""
            )
            for i, name in enumerate(names)
        ]
        functions.append(helper.make_function("loc", f"F{level}", ["a"], ["b"], nodes, opsets))
    return _model([helper.make_node("F0", ["x"], ["y"], domain="loc")], functions=functions)


def _permutation(kind: int = onnx.AttributeProto.INTS) -> onnx.ModelProto:
    node = helper.make_node("Transpose", ["x"], ["t"], perm=[_HUGE, -7])
    node.attribute[0].type = kind
    return _model([node, _softmax("t")])


def _branch_of_nothing() -> onnx.ModelProto:
    branch = helper.make_graph([], "s", [], [_value("nowhere", [4])])
    condition = helper.make_node("Constant", [], ["c"], value=helper.make_tensor("", 9, [], [True]))
    chosen = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    return _model([condition, chosen])


def _function_of_nothing() -> onnx.ModelProto:
    node = helper.make_node("Add", ["a", "nowhere"], ["b"])
    opsets = [helper.make_opsetid("", 23)]
    function = helper.make_function("loc", "F", ["a"], ["b"], [node], opsets)
    return _model([helper.make_node("F", ["x"], ["y"], domain="loc")], functions=[function])


REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "output of nothing": (lambda: _model([]), "got 'y': nothing makes it"),
    "input of nothing": (lambda: _model([_softmax("nowhere")]), "got 'nowhere': nothing makes it"),
    "branch of nothing": (_branch_of_nothing, "got 'nowhere': nothing makes it"),
    "function of nothing": (_function_of_nothing, "got 'nowhere': nothing makes it"),
    "cycle": (_cycle, "must be a graph without cycles"),
    "recursive function": (_recursion, "must have functions that end"),
    "doubling functions": (lambda: doubling_functions(40), "must have at most 5000000 nodes"),
    "negative size": (lambda: with_weight(_weight([-4])), "must have a possible shape"),
    "impossible size": (lambda: with_weight(_weight([2**62, 2**62])), "must have a possible shape"),
    "undefined type": (lambda: with_constant(_typed(0)), "must have an element type"),
    "unknown type": (lambda: with_constant(_typed(29)), "must have an element type"),
    "unknown type of a weight": (lambda: with_weight(_typed(29)), "must be an ONNX model"),
    "size without data": (lambda: with_weight(_weight([_HUGE])), "must hold 4398046511104 bytes"),
    "permutation": (_permutation, "must have a permutation"),
    "permutation without a type": (lambda: _permutation(0), "must give its attributes types"),
    "permutation of another type": (
        lambda: _permutation(onnx.AttributeProto.FLOAT),
        "must have a permutation",
    ),
    "data above": (lambda: with_weight(external("../up.data")), "in its own folder"),
    "data elsewhere": (lambda: with_weight(external("/etc/passwd")), "in its own folder"),
    "data by a link": (lambda: with_weight(external("link.data")), "in its own folder"),
    "data of a constant": (lambda: with_constant(external("../up.data")), "in its own folder"),
    "data in a branch": (lambda: in_a_branch(external("../up.data")), "in its own folder"),
    "too much data": (lambda: with_weight(external("a.data", 0, 2**60)), "bytes of external data"),
    "data that is absent": (lambda: with_weight(external("b.data")), "external data beside it"),
}


def _folded(nodes: Sequence[onnx.NodeProto], **integers: Sequence[int]) -> onnx.ModelProto:
    """Nodes that make `e` from integer constants, and an attention-like softmax of it."""
    weights = [
        helper.make_tensor(
            name, TensorProto.INT64, [len(values)] if name == "shape" else [], values
        )
        for name, values in integers.items()
    ]
    cast = helper.make_node("Cast", ["e"], ["f"], to=TensorProto.FLOAT)
    multiplied = helper.make_node("Mul", ["f", "x"], ["z"])
    return _model([*nodes, cast, multiplied, _softmax("z")], shape=(1, 1), weights=weights)


def _outer_product() -> onnx.ModelProto:
    """Two constants of 2^16 elements whose product has 2^32."""
    tall = helper.make_tensor("a", TensorProto.FLOAT, [2**16, 1], bytes(2**18), raw=True)
    wide = helper.make_tensor("b", TensorProto.FLOAT, [1, 2**16], bytes(2**18), raw=True)
    nodes = [helper.make_node("Mul", ["a", "b"], ["c"]), helper.make_node("Mul", ["c", "x"], ["z"])]
    return _model([*nodes, _softmax("z")], shape=(1, 1), weights=[tall, wide])


def _doubling(length: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Add", ["x", "x"], ["v0"])]
    nodes += [helper.make_node("Add", [f"v{i}"] * 2, [f"v{i + 1}"]) for i in range(length)]
    nodes += [helper.make_node("Softmax", [f"v{length}"], ["p"])]
    return _model([*nodes, helper.make_node("MatMul", ["p", "x"], ["y"])], shape=(4, 4))


def _absurd_attributes() -> onnx.ModelProto:
    node = helper.make_node(
        "QKNormAttention", ["x"] * 3, ["y"], domain="qkexport",
        num_heads=2**62, num_kv_heads=-1, scale=float("nan"), qk_norm="rms" * 100_000,
    )  # fmt: skip
    return _model([node])


REFUSED["huge range"] = (
    lambda: _folded([helper.make_node("Range", ["a", "b", "c"], ["e"])], a=[0], b=[2**45], c=[1]),
    "must have at most 16777216 elements",
)

READ: dict[str, Callable[[], onnx.ModelProto]] = {
    "huge inputs": lambda: _model([_softmax("x")], shape=(2**62, 2**62)),
    "huge fill": lambda: _folded(
        [helper.make_node("ConstantOfShape", ["shape"], ["e"])], shape=[_HUGE, 2**20]
    ),
    "huge expansion": lambda: _folded(
        [helper.make_node("Expand", ["a", "shape"], ["e"])], a=[1], shape=[_HUGE, 2**20]
    ),
    "outer product": _outer_product,
    "deep doubling": lambda: _doubling(3000),
    "absurd attributes": _absurd_attributes,
    "own bytes as data": lambda: with_weight(external("model.onnx")),
}


def write(folder: Path, model: onnx.ModelProto) -> Path:
    """The model in a folder with something to read beside, above, and behind a link."""
    folder.mkdir(exist_ok=True)
    (folder.parent / "up.data").write_bytes(bytes(64))
    (folder / "a.data").write_bytes(bytes(64))
    if not (folder / "link.data").is_symlink():
        (folder / "link.data").symlink_to(folder.parent / "up.data")
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path
