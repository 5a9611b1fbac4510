"""PyTorch behind the runner's interface: names for what a module takes and returns."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from qkexport.errors import UnsupportedModelError, UsageError
from qkexport.load import TorchSource
from qkexport.run import open_runner
from qkexport.run.program import load_program
from qkexport.run.torch_runner import TorchRunner


class _Nested(nn.Module):
    """Takes a keyword, a pair and a flag; returns a dict with a gap."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(7, 5)

    def forward(
        self, x: torch.Tensor, pair: tuple[torch.Tensor, torch.Tensor], flag: bool = True
    ) -> dict[str, torch.Tensor | None]:
        assert flag
        return {"y": self.linear(x), "none": None, "z": pair[0] - pair[1]}


def _source() -> TorchSource:
    pair = (torch.randn(3), torch.randn(3))
    return TorchSource("nested", _Nested().eval(), (torch.randn(2, 7),), {"pair": pair})


def test_nested_inputs_and_outputs_get_names() -> None:
    program = load_program(_source())
    assert [info.name for info in program.inputs] == ["x", "pair_0", "pair_1"]
    assert [info.shape for info in program.outputs] == [(2, 5), (3,)]


def test_the_eager_module_is_what_runs() -> None:
    source = _source()
    program = load_program(source)
    runner = open_runner(program, "torch")
    x, left, right = torch.randn(2, 7), torch.randn(3), torch.randn(3)
    results = runner.run({"x": x, "pair_0": left, "pair_1": right})
    y, z = results.values()
    assert torch.equal(y, source.module.linear(x))  # type: ignore[operator]
    assert torch.equal(z, left - right)
    assert not y.requires_grad


def test_another_type_leaves_the_module_as_it_was() -> None:
    program = load_program(_source())
    runner = TorchRunner(program, torch.bfloat16)
    half = {
        info.name: torch.randn(info.shape).bfloat16()  # type: ignore[arg-type]
        for info in program.inputs
    }
    results = runner.run(half)
    assert {value.dtype for value in results.values()} == {torch.bfloat16}
    assert next(program.module.parameters()).dtype is torch.float32


def test_a_module_without_example_inputs_is_refused() -> None:
    with pytest.raises(UsageError, match="needs example inputs to be traced"):
        load_program(TorchSource("bare", nn.Linear(3, 3)))


def test_a_module_that_cannot_be_traced_is_refused() -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(UnsupportedModelError, match=r"must be traceable by torch\.export"):
        load_program(TorchSource("branches", Branches(), (torch.randn(3),)))
