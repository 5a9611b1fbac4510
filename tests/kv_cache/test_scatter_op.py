"""The PyTorch op that becomes TensorScatter."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from onnx.reference import ReferenceEvaluator

from qkexport.kv_cache.scatter_op import tensor_scatter


def _draw(rows: int, new: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(3, 2, rows, 5), torch.randn(3, 2, new, 5)


@pytest.mark.parametrize("first", [[0, 0, 0], [4, 1, 0], [2, 5, 3]])
def test_it_writes_what_onnx_defines(first: list[int]) -> None:
    buffer, update = _draw(8, 3)
    found = tensor_scatter(buffer, update, torch.tensor(first))
    kinds = [("buffer", 1, [3, 2, 8, 5]), ("update", 1, [3, 2, 3, 5]), ("first", 7, [3])]
    graph = helper.make_graph(
        [helper.make_node("TensorScatter", ["buffer", "update", "first"], ["y"], axis=-2)],
        "g",
        [helper.make_tensor_value_info(*kind) for kind in kinds],
        [helper.make_tensor_value_info("y", 1, [3, 2, 8, 5])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    onnx.checker.check_model(model)
    inputs = {"buffer": buffer.numpy(), "update": update.numpy(), "first": np.array(first)}
    (expected,) = ReferenceEvaluator(model).run(None, inputs)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_rows_outside_of_the_buffer_are_dropped() -> None:
    buffer, update = _draw(4, 3)
    found = tensor_scatter(buffer, update, torch.tensor([-2, 3, 4]))
    expected = buffer.clone()
    expected[0, :, 0] = update[0, :, 2]
    expected[1, :, 3] = update[1, :, 0]
    assert torch.equal(found, expected)


def test_the_buffer_itself_stays_as_it_was() -> None:
    buffer, update = _draw(4, 2)
    before = buffer.clone()
    tensor_scatter(buffer, update, torch.tensor([0, 1, 2]))
    assert torch.equal(buffer, before)


def test_it_exports_and_keeps_sizes_that_vary() -> None:
    buffer, update = _draw(6, 2)
    torch.library.opcheck(tensor_scatter, (buffer, update, torch.tensor([0, 1, 2])))
