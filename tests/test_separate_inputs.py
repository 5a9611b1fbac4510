"""A tensor given for two inputs is two inputs."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import torch
from torch import Tensor, nn

import qkexport
from qkexport.load import TorchSource, load_source
from qkexport.run.program import load_program
from qkexport.separate_inputs import separate_inputs


class Weighted(nn.Module):
    def forward(self, a: Tensor, b: Tensor, pair: tuple[Tensor, Tensor]) -> Tensor:
        return 2 * a + 3 * b + 5 * pair[0] + 7 * pair[1]


def test_what_occurs_again_is_copied_and_nothing_else() -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    args, kwargs = separate_inputs((x, y), {"b": x, "pair": (y, 3)})
    assert args[0] is x
    assert args[1] is y
    assert kwargs["b"] is not x
    assert torch.equal(kwargs["b"], x)
    assert torch.equal(kwargs["pair"][0], y)
    assert kwargs["pair"][1] == 3


def test_a_program_of_repeated_examples_uses_every_input() -> None:
    x = torch.ones(2)
    source = load_source((Weighted(), (x, x, (x, x))))
    assert isinstance(source, TorchSource)
    program = load_program(source)
    values = torch.tensor([1.0, 10.0, 100.0, 1000.0])[:, None].expand(4, 2)
    result = program.exported.module()(values[0], values[1], (values[2], values[3]))
    assert torch.equal(result, torch.full((2,), 2.0 + 30 + 500 + 7000))


def test_a_conversion_of_repeated_examples_uses_every_input(tmp_path: Path) -> None:
    x = torch.ones(2, 3)
    output = tmp_path / "m.onnx"
    assert qkexport.convert((Weighted(), (x, x, (x, x))), output)
    graph = ir.load(output).graph
    assert len(graph.inputs) == 4
    assert all(value.uses() for value in graph.inputs)
