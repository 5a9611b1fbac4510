"""The oracle of ONNX files agrees with that of the program they were exported from."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch
from test_program_oracle import CastingAttention

from qkexport.load import TorchSource
from qkexport.oracle import OnnxOracle, ProgramOracle
from qkexport.run.onnx_torch_runner import OnnxTorchRunner
from qkexport.run.program import load_program
from qkexport.trace import trace


@pytest.fixture(scope="module", params=[20, 24], ids=["opset20", "opset24"])
def exported(request: pytest.FixtureRequest) -> tuple[TorchSource, ir.Model, torch.Tensor]:
    torch.manual_seed(3)
    x = torch.randn(2, 7, 24)
    source = TorchSource("model", CastingAttention(torch.float32).eval(), (x,))
    return source, trace(source, opset=request.param).model, x


def test_two_oracles_of_one_model_agree(
    exported: tuple[TorchSource, ir.Model, torch.Tensor],
) -> None:
    source, model, x = exported
    (left,) = ProgramOracle(load_program(source)).run({"x": x}).values()
    (right,) = OnnxOracle(model).run({"x": x}).values()
    # the file keeps 1e-6 and sqrt(scale) as float32
    torch.testing.assert_close(left, right, rtol=0, atol=2e-7)


def test_the_baseline_rounds_as_pytorch_does(
    exported: tuple[TorchSource, ir.Model, torch.Tensor],
) -> None:
    source, model, x = exported
    (found,) = OnnxTorchRunner(model).run({"x": x}).values()
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, source.module(x), rtol=1e-5, atol=2e-6)


def test_noise_is_of_the_size_of_rounding(
    exported: tuple[TorchSource, ir.Model, torch.Tensor],
) -> None:
    _, model, x = exported
    oracle = OnnxOracle(model)
    (exact,) = oracle.run({"x": x}).values()
    (rounded,) = OnnxTorchRunner(model).run({"x": x}).values()
    error = float((rounded.double() - exact).abs().max())
    for draw in oracle.noisy({"x": x}, draws=3):
        effect = float((next(iter(draw.values())) - exact).abs().max())
        assert error / 10 < effect < error * 10
