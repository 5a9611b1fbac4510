"""Example inputs are bound by name, completed, cast, and given their dynamic axes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from qkexport.errors import UsageError
from qkexport.example_inputs import complete_source
from qkexport.input_options import DynamicDim, InputSpec
from qkexport.load import TorchSource


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(
        self, ids: torch.Tensor, mask: torch.Tensor | None = None, *, scale: float = 1.0
    ) -> torch.Tensor:
        return ids


class Rest(nn.Module):
    def forward(self, x: torch.Tensor, *more: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        return x


class Named(nn.Module):
    def forward(self, x: torch.Tensor, **named: torch.Tensor) -> torch.Tensor:
        return x


class Positional(nn.Module):
    def forward(self, x: torch.Tensor, /, y: torch.Tensor) -> torch.Tensor:
        return x + y


def _source(module: nn.Module | None = None, *args: Any, **fields: Any) -> TorchSource:
    return TorchSource("model", module or Two(), args, **fields)


def test_specs_become_tensors_in_the_order_of_forward() -> None:
    inputs = {"mask": InputSpec("mask", (2, 5)), "ids": InputSpec("ids", (2, 5), "int64")}
    done = complete_source(_source(), inputs)
    assert done.args == ()
    assert list(done.kwargs) == ["ids", "mask"]
    assert done.kwargs["ids"].dtype == torch.int64
    assert done.stand_ins == {"ids", "mask"}


def test_given_inputs_replace_the_factory_s_own() -> None:
    done = complete_source(_source(None, torch.zeros(1, 4)), {"ids": torch.ones(3, 4)})
    assert done.kwargs["ids"].shape == (3, 4)
    assert done.stand_ins == set()


def test_missing_inputs_are_named_with_the_flag_that_gives_them() -> None:
    with pytest.raises(UsageError) as caught:
        complete_source(_source(), {})
    assert "needs example inputs to be traced, got none for ['ids']" in caught.value.message
    assert "forward(ids: " in (caught.value.note or "")
    assert "--input ids=SHAPE:DTYPE" in (caught.value.hint or "")


def test_a_misspelled_input_is_answered_with_the_right_name() -> None:
    with pytest.raises(UsageError) as caught:
        complete_source(_source(), {"idz": InputSpec("idz", (1,))})
    assert "got 'idz'" in caught.value.message
    assert caught.value.hint == "did you mean 'ids'?"


def test_too_many_inputs_of_a_factory_are_refused() -> None:
    with pytest.raises(UsageError, match="must fit forward"):
        complete_source(_source(None, torch.ones(1), torch.ones(1), torch.ones(1)), {})


def test_the_dtype_casts_the_module_and_floating_inputs() -> None:
    source = _source(None, torch.zeros(2, 4, dtype=torch.int64), torch.ones(2, 4))
    done = complete_source(source, {}, dtype=torch.float16)
    assert {p.dtype for p in done.module.parameters()} == {torch.float16}
    assert done.kwargs["mask"].dtype == torch.float16
    assert done.kwargs["ids"].dtype == torch.int64


def test_drawn_floats_take_the_dtype_unless_they_name_their_own() -> None:
    inputs = {"ids": InputSpec("ids", (59,)), "mask": InputSpec("mask", (59,), "float64")}
    done = complete_source(_source(), inputs)
    assert done.kwargs["ids"].dtype == torch.float32
    assert done.kwargs["ids"].min() < 0 < done.kwargs["ids"].max()
    assert done.kwargs["mask"].dtype == torch.float64


def test_dynamic_axes_join_the_factory_s_own() -> None:
    batch = torch.export.Dim("batch")
    source = _source(None, torch.ones(2, 6), torch.ones(2, 6), dynamic_shapes={"ids": {0: batch}})
    done = complete_source(source, {}, [DynamicDim("ids", -1, "seq", 1, 9)])
    assert done.dynamic_shapes["ids"][0] is batch
    assert done.dynamic_shapes["ids"][1].__name__ == "seq"
    assert done.dynamic_shapes["mask"] is None


def test_one_symbol_is_one_dimension_with_one_range() -> None:
    dynamic = [DynamicDim("ids", 0, "n", 2), DynamicDim("mask", 0, "n", None, 8)]
    source = _source(None, torch.ones(2, 6), torch.ones(2, 6))
    shapes = complete_source(source, {}, dynamic).dynamic_shapes
    assert shapes["ids"][0] is shapes["mask"][0]
    assert (shapes["ids"][0].min, shapes["ids"][0].max) == (2, 8)


def test_a_symbol_with_two_ranges_is_refused() -> None:
    dynamic = [DynamicDim("ids", 0, "n", 2), DynamicDim("mask", 0, "n", 3)]
    with pytest.raises(UsageError, match="n must have one minimum, got 2 and 3"):
        complete_source(_source(None, torch.ones(2, 6), torch.ones(2, 6)), {}, dynamic)


@pytest.mark.parametrize(
    ("dim", "message"),
    [
        (DynamicDim("idz", 0, "n"), "got 'idz'"),
        (DynamicDim("ids", 2, "n"), "must name one of its 2 axes, got 2"),
        (DynamicDim("ids", -3, "n"), "must name one of its 2 axes, got -3"),
        (DynamicDim("mask", 0, "n"), "must be a tensor input, got no value"),
    ],
)
def test_an_axis_that_is_not_there_is_refused(dim: DynamicDim, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        complete_source(_source(None, torch.ones(2, 6)), {}, [dim])


def test_dynamic_shapes_of_inputs_that_were_not_given_are_refused() -> None:
    source = _source(None, torch.ones(2, 6), dynamic_shapes={"idz": None})
    with pytest.raises(UsageError, match=r"must name given inputs, got \['idz'\]"):
        complete_source(source, {})


def test_dynamic_shapes_by_position_are_understood() -> None:
    n = torch.export.Dim("n")
    source = _source(Positional(), torch.ones(2), torch.ones(2), dynamic_shapes=({0: n}, {0: n}))
    done = complete_source(source, {})
    assert len(done.args) == 1
    assert list(done.kwargs) == ["y"]
    program = torch.export.export(
        done.module, done.args, dict(done.kwargs), dynamic_shapes=done.dynamic_shapes
    )
    assert program.module()(torch.ones(7), y=torch.ones(7)).shape == (7,)


def test_variadic_inputs_reach_forward() -> None:
    source = _source(Rest(), torch.ones(2), torch.ones(3), kwargs={"extra": torch.ones(4)})
    done = complete_source(source, {})
    assert [len(value) for value in done.args] == [2, 3]
    assert list(done.kwargs) == ["extra"]


def test_dynamic_axes_of_variadic_keywords_are_nested_as_torch_export_wants_them() -> None:
    source = _source(Named(), torch.ones(2), kwargs={"extra": torch.ones(4)})
    shapes = complete_source(source, {}, [DynamicDim("extra", 0, "n")]).dynamic_shapes
    assert list(shapes) == ["x", "named"]
    assert shapes["named"]["extra"][0].__name__ == "n"


@pytest.mark.parametrize("change", ["input", "dynamic", "dtype"])
def test_an_exported_program_is_not_changed_any_more(change: str) -> None:
    program = torch.export.export(nn.Linear(3, 2), (torch.ones(1, 3),))
    source = TorchSource("m.pt2", program.module(), program=program)
    inputs = {"input": torch.ones(1, 3)} if change == "input" else {}
    dynamic = [DynamicDim("input", 0, "n")] if change == "dynamic" else []
    dtype = torch.float16 if change == "dtype" else None
    with pytest.raises(UsageError, match=f"--{change} must be given when the model is exported"):
        complete_source(source, inputs, dynamic, dtype)
