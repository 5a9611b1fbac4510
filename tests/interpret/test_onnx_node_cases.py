"""The interpreter on ONNX's own conformance cases: every operator it has, in both arithmetics."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
import torch

from qkexport.interpret import Interpreter
from qkexport.interpret.call import OPERATORS
from qkexport.interpret.tensors import to_torch

# What the interpreter refuses on purpose, by the name of the case.
REFUSED = ("qk_matmul", "local_window_gqa_rank4_mask", "training", "autopad_same", "if_opt")


@pytest.fixture(scope="module")
def cases() -> list[Any]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of divisions by zero that the cases mean
        found = list(collect_testcases(None))
    return [case for case in found if _is_covered(case)]


def _is_covered(case: Any) -> bool:
    nodes = case.model.graph.node
    known = all(node.domain == "" and node.op_type in {*OPERATORS, "If"} for node in nodes)
    tensors = all(
        value.type.HasField("tensor_type") and value.type.tensor_type.elem_type in _TYPES
        for value in (*case.model.graph.input, *case.model.graph.output)
    )
    refused = any(word in case.name for word in REFUSED)
    return known and tensors and not refused and not case.model.functions


_TYPES = (1, 2, 3, 5, 6, 7, 9, 10, 11, 16)


def _tensor(value: Any) -> torch.Tensor:
    if not isinstance(value, onnx.TensorProto):
        value = onnx.numpy_helper.from_array(np.asarray(value))
    return to_torch(ir.from_proto(value))


def _failures(cases: list[Any], exact: bool) -> Iterator[str]:
    for case in cases:
        inputs, outputs = case.data_sets[0]
        graph = case.model.graph
        feeds = {value.name: _tensor(x) for value, x in zip(graph.input, inputs, strict=False)}
        try:
            found = Interpreter(ir.from_proto(case.model), exact=exact).run(feeds)
            for value, x in zip(graph.output, outputs, strict=True):
                _check(found[value.name], _tensor(x), exact)
        except Exception as error:
            yield f"{case.name}: {str(error).splitlines()[0]}"


def _check(found: torch.Tensor, expected: torch.Tensor, exact: bool) -> None:
    assert found.shape == expected.shape
    narrow = expected.dtype in (torch.float16, torch.bfloat16)
    if exact and expected.is_floating_point():
        assert found.dtype is torch.float64
    else:
        assert found.dtype is expected.dtype
    rtol, atol = (2e-2, 1e-2) if narrow else (1e-3, 1e-5)
    torch.testing.assert_close(
        found.double(), expected.double(), rtol=rtol, atol=atol, equal_nan=True
    )


@pytest.mark.parametrize("exact", [False, True], ids=["native", "exact"])
def test_every_case_of_every_operator_is_right(cases: list[Any], exact: bool) -> None:
    assert len(cases) > 1000
    assert list(_failures(cases, exact)) == []


def test_every_operator_has_a_case(cases: list[Any]) -> None:
    tested = {node.op_type for case in cases for node in case.model.graph.node}
    assert set(OPERATORS) - tested == set()
