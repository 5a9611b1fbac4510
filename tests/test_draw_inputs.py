"""Random inputs reach every part of a model and stay inside its tables."""

from __future__ import annotations

import onnx_ir as ir
import pytest
import torch
from onnx_ir import tape

from qkexport.domain import InputDomain, ModelDomain
from qkexport.draw_inputs import draw_inputs, index_bounds

LENGTH = 4999


def _draw(
    dtype: str,
    shape: tuple[int | str, ...] = (LENGTH,),
    *,
    name: str = "x",
    bound: int | None = None,
    example: torch.Tensor | None = None,
    seed: int = 0,
) -> torch.Tensor:
    domain = ModelDomain((InputDomain(name, dtype, shape),), {})
    bounds = {} if bound is None else {name: bound}
    examples = {} if example is None else {name: example}
    return draw_inputs(domain, {"n": 97}, seed=seed, bounds=bounds, examples=examples)[name]


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_floats_are_symmetric_about_zero(dtype: str) -> None:
    x = _draw(dtype)
    assert x.dtype == getattr(torch, dtype)
    assert abs(x.double().mean()) < 0.05
    assert abs(x.double().std() - 1) < 0.05
    assert 0.45 < (x > 0).double().mean() < 0.55


def test_rows_of_floats_are_not_parallel() -> None:
    x = torch.nn.functional.normalize(_draw("float32", (59, 64)), dim=-1)
    cosines = (x @ x.T)[~torch.eye(59, dtype=torch.bool)]
    assert abs(cosines.mean()) < 0.05


def test_every_type_gets_the_same_values() -> None:
    assert torch.equal(_draw("float32").half(), _draw("float16"))


def test_indices_fill_their_table_and_stay_in_it() -> None:
    x = _draw("int64", bound=59)
    assert (int(x.min()), int(x.max())) == (0, 58)


def test_integers_without_a_table_stay_in_the_range_of_their_example() -> None:
    x = _draw("int32", example=torch.tensor([3, 9]))
    assert x.dtype == torch.int32
    assert (int(x.min()), int(x.max())) == (3, 9)


def test_padding_masks_keep_a_prefix_of_every_row() -> None:
    mask = _draw("int64", (59, "n"), name="attention_mask")
    assert mask.shape == (59, 97)
    assert bool((mask[:, 0] == 1).all())
    assert bool((mask[:, 1:] <= mask[:, :-1]).all())
    assert 0.2 < mask.double().mean() < 0.8


def test_boolean_masks_leave_no_row_without_a_key() -> None:
    mask = _draw("bool", (5, 1, 59, 59))
    assert bool(mask.any(-1).all())
    assert not bool(mask.all())


def test_empty_inputs_are_drawn_empty() -> None:
    assert _draw("bool", (0, 0)).shape == (0, 0)
    assert _draw("int64", (0,), example=torch.zeros(0)).shape == (0,)


def test_a_seed_draws_the_same_again_and_another_does_not() -> None:
    assert torch.equal(_draw("float32", seed=3), _draw("float32", seed=3))
    assert not torch.equal(_draw("float32", seed=3), _draw("float32", seed=4))


def _value(name: str, dtype: ir.DataType, shape: list[int | str]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def test_tables_are_found_through_nodes_that_move_indices() -> None:
    ids = _value("ids", ir.DataType.INT64, ["n"])
    places = _value("places", ir.DataType.INT64, ["n"])
    added = _value("added", ir.DataType.INT64, ["n"])
    large, small = (_value(f"t{n}", ir.DataType.FLOAT, [n, 4]) for n in (59, 17))
    wide = _value("wide", ir.DataType.FLOAT, [4, 11])
    steps = tape.Tape()
    moved = steps.op("Unsqueeze", [steps.op("Cast", [ids], {"to": 7}), places])
    steps.op("Gather", [large, moved])
    steps.op("Gather", [small, ids])
    steps.op("Gather", [wide, places], {"axis": 1})
    steps.op("Gather", [small, steps.op("Add", [added, added])])
    graph = ir.Graph([ids, places, added], [], nodes=steps.nodes, opset_imports={"": 20})
    bounds = index_bounds(ir.Model(graph, ir_version=10))
    assert bounds == {"ids": 17, "places": 11}, "the smallest table; arithmetic is not followed"
