"""PyTorch sources become ONNX graphs with the names, symbols and ranges the user gave."""

from __future__ import annotations

import logging
import sys
import warnings
from typing import Any

import pytest
import torch
from qk_norm_models import LearnedScale, MaskedAttention
from torch import nn

from qkexport.errors import UnsupportedModelError
from qkexport.example_inputs import complete_source
from qkexport.input_options import DynamicDim, InputSpec
from qkexport.load import TorchSource
from qkexport.trace import Trace, trace

IDS = {"ids": InputSpec("ids", (2, 7), "int64")}
BOTH = [DynamicDim("ids", 0, "batch", 1, 64), DynamicDim("ids", 1, "seq")]


def _trace(module: nn.Module, inputs: Any, dynamic: Any = (), *, opset: int = 24) -> Trace:
    return trace(complete_source(TorchSource("m", module.eval()), inputs, dynamic), opset=opset)


def test_axes_carry_the_names_and_ranges_they_were_given() -> None:
    traced = _trace(MaskedAttention(), IDS, BOTH)
    assert str(traced.model.graph.inputs[0].shape) == "[batch,seq]"
    assert str(traced.model.graph.outputs[0].shape) == "[batch,seq,59]"


@pytest.mark.parametrize("opset", [18, 20, 22, 23, 24, 25])
def test_the_graph_has_the_opset_that_was_asked_for(opset: int) -> None:
    assert _trace(MaskedAttention(), IDS, opset=opset).model.opset_imports[""] == opset


def test_an_opset_that_an_operator_has_no_form_at_is_refused() -> None:
    class Resize(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.pad(x, (1, 2), mode="circular")

    with pytest.raises(UnsupportedModelError, match=r"must fit opset 17, got operators of \d+"):
        _trace(Resize(), {"x": InputSpec("x", (1, 3, 8))}, opset=17)


def test_weights_are_not_copied() -> None:
    module = MaskedAttention()
    traced = _trace(module, IDS)
    weight = traced.model.graph.initializers["head.bias"].const_value
    assert weight is not None
    assert weight.numpy().ctypes.data == module.head.bias.data_ptr()


def test_a_program_is_traced_as_it_was_exported() -> None:
    module = MaskedAttention().eval()
    seq = torch.export.Dim("seq", min=2, max=59)
    program = torch.export.export(
        module, (torch.zeros(2, 7, dtype=torch.int64),), dynamic_shapes=({1: seq},)
    )
    traced = trace(TorchSource("m.pt2", program.module(), program=program), opset=24)
    assert isinstance(traced.source, TorchSource)
    assert traced.source.program is program
    (ids,) = traced.model.graph.inputs
    assert ids.shape is not None
    assert ids.shape[0] == 2
    assert not isinstance(ids.shape[1], int)


def test_in_place_updates_are_values_before_anything_is_matched() -> None:
    class InPlace(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x * 2
            y[:, 1:] = y[:, 1:] + 1
            return y.exp()

    model = _trace(InPlace(), {"x": InputSpec("x", (2, 5))}).model
    exp = next(node for node in model.graph if node.op_type == "Exp")
    assert exp.inputs[0] is not None
    producer = exp.inputs[0].producer()
    assert producer is not None
    assert producer.op_type != "Mul", "the update must lie between the product and its use"


def test_data_dependent_control_flow_is_refused_with_its_place() -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    with pytest.raises(UnsupportedModelError) as caught:
        _trace(Branch(), {"x": InputSpec("x", (2,))})
    assert "must be exportable by torch.export, got" in caught.value.message
    assert "test_trace.py:" in (caught.value.note or "")


def test_an_axis_that_the_model_fixes_is_refused() -> None:
    class Fixed(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.reshape(2, 3)

    with pytest.raises(UnsupportedModelError, match="must be exportable"):
        _trace(Fixed(), {"x": InputSpec("x", (2, 3))}, [DynamicDim("x", 0, "n")])


def test_the_exporter_is_quiet(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    class Noisy(LearnedScale):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            print("from the model")  # noqa: T201
            sys.stderr.write("from the model\n")
            warnings.warn("from the model", stacklevel=1)
            return super().forward(x)

    with caplog.at_level(logging.DEBUG, logger="qkexport"):
        _trace(Noisy(), {"x": InputSpec("x", (2, 5, 24))})
    captured = capfd.readouterr()
    assert "from the model" not in captured.out + captured.err
    assert caplog.text.count("from the model") >= 3
