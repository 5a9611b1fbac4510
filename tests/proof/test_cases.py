"""What a suite draws: legal, symmetric, repeatable, and of every kind."""

from __future__ import annotations

import types
from typing import cast

import pytest
import torch

from qkexport.domain import InputDomain, ModelDomain, SizeRange
from qkexport.proof.cases import Case, Suite, draw, suite_cases
from qkexport.proof.prepare import Refused, prepare
from qkexport.proof.reference import Reference
from qkexport.proof.values import Padding, Values, draw_floats, draw_mask
from qkexport.run.runner import TensorInfo, Tensors


def _reference(*inputs: InputDomain, **bounds: int) -> Reference:
    symbols = {name: SizeRange(1, 50, traced=6) for item in inputs for name in item.symbols}
    fake = types.SimpleNamespace(
        domain=ModelDomain(inputs, symbols),
        inputs=tuple(
            TensorInfo(item.name, getattr(torch, item.dtype), item.shape) for item in inputs
        ),
        index_bounds=bounds,
        examples={},
    )
    return cast(Reference, fake)


X = InputDomain("x", "float32", ("b", "s", 64))
IDS = InputDomain("ids", "int64", ("b", "s"))
MASK = InputDomain("attention_mask", "int64", ("b", "s"))
BIAS = InputDomain("mask", "float16", ("b", 1, "s", "s"))


def _drawn(reference: Reference, case: Case) -> dict[str, torch.Tensor]:
    return draw(reference, case, case.sizes[0])


@pytest.mark.parametrize("suite", list(Suite))
def test_labels_are_unique_and_all_kinds_of_values_appear(suite: Suite) -> None:
    cases = suite_cases(_reference(X), suite, 0)
    labels = [case.label for case in cases]
    assert len(set(labels)) == len(labels)
    assert {case.values for case in cases} == set(Values)


def test_the_full_suite_goes_to_both_ends_of_the_sizes() -> None:
    sizes = [case.sizes[0] for case in suite_cases(_reference(X), Suite.FULL, 0)]
    lengths = {size["s"] for size in sizes}
    assert {1, 6, 50} <= lengths
    assert any(length % 2 for length in lengths - {1})


def test_every_padding_appears_where_there_is_a_mask() -> None:
    cases = suite_cases(_reference(IDS, MASK, ids=99), Suite.QUICK, 0)
    assert {case.padding for case in cases} == set(Padding)


def test_ids_stay_in_their_table_and_reach_both_ends() -> None:
    reference = _reference(IDS, ids=37)
    for case in suite_cases(reference, Suite.FULL, 5):
        ids = _drawn(reference, case)["ids"]
        assert ids.min() >= 0
        assert ids.max() <= 36
        if case.values is not Values.CONSTANT and ids.numel() > 1:
            assert {0, 36} <= set(ids.flatten().tolist())


def test_a_case_draws_the_same_again_and_other_seeds_do_not() -> None:
    reference = _reference(X)
    first, again, other = (
        _drawn(reference, suite_cases(reference, Suite.QUICK, seed)[0])["x"] for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("values", list(Values))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_values_are_finite_and_symmetric_about_zero(values: Values, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x = draw_floats(values, (40, 33, 64), dtype, generator)
    assert x.dtype is dtype
    assert torch.isfinite(x).all()
    wide = x.double()
    assert abs(float((wide > 0).double().mean() - (wide < 0).double().mean())) < 0.05


def test_each_kind_of_values_is_what_it_says() -> None:
    def of(values: Values, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return draw_floats(values, (2, 33, 64), dtype, torch.Generator().manual_seed(0))

    assert (of(Values.ZERO_ROWS) == 0).all(dim=-1)[:, 0].all()
    assert not (of(Values.ZERO_ROWS) == 0).all(dim=-1).all(dim=1).any()
    constant = of(Values.CONSTANT)
    assert (constant == constant[:, :1]).all()
    assert not torch.equal(constant[0], constant[1])
    assert of(Values.TINY).abs().max() < 1e-8
    assert of(Values.HUGE).abs().max() > 1e4
    assert (of(Values.HUGE, torch.float16).float().square() > 65504).any()
    channels = of(Values.OUTLIERS).abs().amax(dim=(0, 1))
    assert int((channels > 20).sum()) == 2
    kurtosis = (of(Values.PEAKY) ** 4).mean() / (of(Values.PEAKY) ** 2).mean() ** 2
    assert kurtosis > 10


@pytest.mark.parametrize("shape", [(4, 9), (4, 1, 7, 9), (9,)])
@pytest.mark.parametrize("padding", list(Padding))
def test_masks_keep_something_in_every_row(padding: Padding, shape: tuple[int, ...]) -> None:
    mask = draw_mask(padding, shape, torch.Generator().manual_seed(1))
    assert mask.shape == shape
    assert mask.any(dim=-1).all()
    assert mask.all() == (padding is Padding.NONE)


def test_padding_is_on_the_side_it_says() -> None:
    generator = torch.Generator().manual_seed(1)
    right, left = (draw_mask(side, (8, 9), generator) for side in (Padding.RIGHT, Padding.LEFT))
    assert (right.long().diff(dim=1) <= 0).all()
    assert (left.long().diff(dim=1) >= 0).all()


def test_additive_masks_are_zero_or_the_lowest_value() -> None:
    reference = _reference(BIAS)
    case = next(
        case for case in suite_cases(reference, Suite.QUICK, 0) if case.padding is Padding.SCATTERED
    )
    bias = _drawn(reference, case)["mask"]
    assert set(bias.flatten().tolist()) == {0.0, torch.finfo(torch.float16).min}


class _Picky:
    """Refuses odd lengths, as models with patches do."""

    def __init__(self, reference: Reference) -> None:
        self.domain, self.inputs = reference.domain, reference.inputs
        self.index_bounds, self.examples = reference.index_bounds, reference.examples

    def baseline(self, inputs: Tensors, dtype: torch.dtype | None) -> Tensors:
        if inputs["x"].shape[1] % 2:
            message = "the length must be even"
            raise ValueError(message)
        return {"y": inputs["x"]}

    def exact(self, inputs: Tensors) -> Tensors:
        return {"y": inputs["x"].double()}


def test_the_reference_chooses_among_the_sizes_of_a_case() -> None:
    reference = cast(Reference, _Picky(_reference(X)))
    case = Case("odd", ({"b": 1, "s": 7}, {"b": 1, "s": 8}), Values.NORMAL, Padding.NONE, 0)
    assert prepare(reference, case, None, {}).inputs["x"].shape[1] == 8


def test_a_case_refused_at_every_size_says_why() -> None:
    reference = cast(Reference, _Picky(_reference(X)))
    case = Case("odd", ({"b": 1, "s": 7},), Values.NORMAL, Padding.NONE, 0)
    with pytest.raises(Refused, match="the length must be even"):
        prepare(reference, case, None, {})


def test_inputs_are_rounded_for_a_candidate_that_takes_them_narrower() -> None:
    reference = cast(Reference, _Picky(_reference(X)))
    case = Case("even", ({"b": 1, "s": 8},), Values.NORMAL, Padding.NONE, 0)
    x = prepare(reference, case, torch.float16, {}).inputs["x"]
    assert x.dtype is torch.float32
    assert torch.equal(x, x.half().float())
