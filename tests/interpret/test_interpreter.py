"""Graphs, scopes and memory; operators have their conformance cases."""

from __future__ import annotations

import gc
import weakref

import onnx
import onnx_ir as ir
import pytest
import torch
from onnx import TensorProto, helper

from qkexport.errors import UnsupportedModelError
from qkexport.interpret import Interpreter


def _model(
    nodes: list[onnx.NodeProto], outputs: tuple[str, ...] = ("y",), **extra: object
) -> ir.Model:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 7])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10, **extra)
    return ir.from_proto(model)


def test_a_function_is_evaluated_by_its_body() -> None:
    body = helper.make_function(
        "local",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 23)],
    )
    node = helper.make_node("Twice", ["x"], ["y"], domain="local")
    model = _model([node], functions=[body])
    x = torch.randn(3, 7)
    assert torch.equal(Interpreter(model, exact=False).run({"x": x})["y"], 2 * x)


@pytest.mark.parametrize("positive", [True, False])
def test_a_branch_reads_values_of_its_outer_graph(positive: bool) -> None:
    def branch(op_type: str) -> onnx.GraphProto:
        node = helper.make_node(op_type, ["h"], ["z"])
        return helper.make_graph([node], op_type, [], [helper.make_empty_tensor_value_info("z")])

    nodes = [
        helper.make_node("Add", ["x", "x"], ["h"]),
        helper.make_node("ReduceSum", ["x"], ["total"], keepdims=0),
        helper.make_node("Constant", [], ["zero"], value_float=0.0),
        helper.make_node("Greater", ["total", "zero"], ["condition"]),
        helper.make_node(
            "If",
            ["condition"],
            ["y"],
            then_branch=branch("Identity"),
            else_branch=branch("Neg"),
        ),
    ]
    x = torch.full((2, 7), 1.0 if positive else -1.0)
    found = Interpreter(_model(nodes), exact=False).run({"x": x})["y"]
    assert torch.equal(found, torch.full((2, 7), 2.0))


def test_values_are_dropped_after_their_last_use() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["h0"])]
    nodes += [helper.make_node("Neg", [f"h{i}"], [f"h{i + 1}"]) for i in range(5)]
    nodes.append(helper.make_node("Identity", ["h5"], ["y"]))
    alive: list[weakref.ref[torch.Tensor]] = []

    def tap(value: ir.Value, x: torch.Tensor) -> torch.Tensor:
        gc.collect()
        assert sum(ref() is not None for ref in alive) <= 2
        alive.append(weakref.ref(x))
        return x

    Interpreter(_model(nodes), exact=False).run({"x": torch.randn(2, 7)}, tap)
    assert len(alive) == 7


def test_an_output_in_the_middle_is_kept() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["h"]), helper.make_node("Neg", ["h"], ["y"])]
    found = Interpreter(_model(nodes, ("h", "y")), exact=False).run({"x": torch.ones(1, 7)})
    assert found["h"].sum() == -7
    assert found["y"].sum() == 7


def test_casts_and_constants_round_nothing_when_exact() -> None:
    nodes = [
        helper.make_node("Constant", [], ["c"], value_float=0.1),
        helper.make_node("Cast", ["x"], ["half"], to=TensorProto.FLOAT16),
        helper.make_node("Cast", ["half"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["wide", "c"], ["y"]),
    ]
    x = torch.randn(2, 7)
    found = Interpreter(_model(nodes), exact=True).run({"x": x})["y"]
    assert found.dtype is torch.float64
    assert torch.equal(found, x.double() * float(torch.tensor(0.1)))  # the file has a float32


def test_an_operator_without_an_evaluation_here_goes_to_onnx() -> None:
    nodes = [helper.make_node("ThresholdedRelu", ["x"], ["y"], alpha=0.5)]
    x = torch.randn(3, 7)
    found = Interpreter(_model(nodes), exact=True).run({"x": x})["y"]
    assert torch.equal(found, torch.where(x > 0.5, x, 0.0).double())


def test_an_unknown_operator_is_refused_by_name() -> None:
    node = helper.make_node("Wobble", ["x"], ["y"], name="n7", domain="local")
    with pytest.raises(UnsupportedModelError, match="Node n7 must be a known operator, got local"):
        Interpreter(_model([node]), exact=True).run({"x": torch.ones(1, 7)})
    node = helper.make_node("Wobble", ["x"], ["y"], name="n8")
    with pytest.raises(UnsupportedModelError, match="Node n8 must be a known operator, got Wobble"):
        Interpreter(_model([node]), exact=True).run({"x": torch.ones(1, 7)})


def test_an_operator_that_fails_names_its_node() -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"]),
        helper.make_node("Add", ["x", "t"], ["y"], name="sum"),
    ]
    with pytest.raises(UnsupportedModelError, match=r"Node sum \(Add\) must be computable, got"):
        Interpreter(_model(nodes), exact=False).run({"x": torch.ones(2, 7)})
