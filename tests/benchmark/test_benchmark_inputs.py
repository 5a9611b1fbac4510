"""Inputs of a benchmark: the sizes a model is meant for, under each contender's names."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine_models import WIDTH, needs_rtx, save_embedding, save_fused
from torch import Tensor, nn

import qkexport
from qkexport import BuildOptions, InputSpec
from qkexport.benchmark.inputs import draw_inputs, feeds
from qkexport.engine.options import parse_shapes
from qkexport.errors import UsageError
from qkexport.run import TensorInfo


def _draw(source: Path, *others: Path, **given: Tensor | InputSpec) -> dict[str, Tensor]:
    return draw_inputs(str(source), others, given, seed=0, allow_pickle=False)


def test_a_model_of_which_nothing_is_known_gets_one_sample_of_128(tmp_path: Path) -> None:
    inputs = _draw(save_fused(tmp_path / "m.onnx"))
    assert inputs["x"].shape == (1, 128, WIDTH)
    assert inputs["x"].dtype == torch.float16
    assert torch.equal(inputs["x"], _draw(tmp_path / "m.onnx")["x"])


def test_a_given_shape_fixes_its_symbols(tmp_path: Path) -> None:
    spec = InputSpec("x", (3, 59, WIDTH))
    inputs = _draw(save_fused(tmp_path / "m.onnx"), x=spec)
    assert inputs["x"].shape == (3, 59, WIDTH)


def test_given_values_are_used_as_they_are(tmp_path: Path) -> None:
    x = torch.randn(2, 7, WIDTH).half()
    assert _draw(save_fused(tmp_path / "m.onnx"), x=x)["x"] is x


def test_a_shape_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Input x must be"):
        _draw(save_fused(tmp_path / "m.onnx"), x=InputSpec("x", (3, WIDTH)))
    with pytest.raises(UsageError, match="no input of that name, got 'y'"):
        _draw(tmp_path / "m.onnx", y=InputSpec("y", (3, WIDTH)))


def test_indices_lie_inside_their_table(tmp_path: Path) -> None:
    (indices,) = _draw(save_embedding(tmp_path / "m.onnx", rows=7)).values()
    assert indices.min() == 0
    assert indices.max() == 6


@needs_rtx
def test_an_engine_among_them_decides_the_sizes(tmp_path: Path) -> None:
    model, engine = save_fused(tmp_path / "m.onnx"), tmp_path / "m.engine"
    profiles = parse_shapes(["x=1x1x32,2x59x32,3x97x32"])
    qkexport.build(model, engine, options=BuildOptions(targets=("sm_89",), profiles=profiles))
    assert _draw(model, engine)["x"].shape == (2, 59, WIDTH)
    assert _draw(engine)["x"].shape == (2, 59, WIDTH)
    assert _draw(model, engine, x=InputSpec("x", (1, 5, WIDTH)))["x"].shape == (1, 5, WIDTH)


class Sum(nn.Module):
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left + right


def test_a_program_runs_on_what_it_was_traced_with(tmp_path: Path) -> None:
    left, right = torch.randn(2, 3), torch.randn(2, 3)
    torch.export.save(torch.export.export(Sum(), (left, right)), tmp_path / "m.pt2")
    inputs = _draw(tmp_path / "m.pt2")
    assert torch.equal(inputs["left"], left)
    assert torch.equal(inputs["right"], right)


FLOAT, HALF, INTEGER = torch.float32, torch.float16, torch.int32


def test_names_pair_first_then_places() -> None:
    drawn = {"a": torch.ones(2), "b": torch.zeros(3, dtype=torch.int64)}
    named = feeds((TensorInfo("b", INTEGER, (3,)), TensorInfo("a", HALF, (2,))), drawn, "m")
    assert {name: (x.dtype, x.shape) for name, x in named.items()} == {
        "b": (INTEGER, (3,)),
        "a": (HALF, (2,)),
    }
    placed = feeds((TensorInfo("p", FLOAT, (2,)), TensorInfo("q", INTEGER, (3,))), drawn, "m")
    assert [x.numel() for x in placed.values()] == [2, 3]
    with pytest.raises(UsageError, match="Model m must take the inputs a, b, got p"):
        feeds((TensorInfo("p", FLOAT, (2,)),), drawn, "m")
