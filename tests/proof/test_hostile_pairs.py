"""Pairs that once got the wrong verdict: different ones that passed, equal ones that did not."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir
import pytest
import torch
from qk_norm_models import WIDTH, VisionAttention
from torch import Tensor, nn

from qkexport.errors import UnsupportedModelError, UsageError
from qkexport.load import TorchSource
from qkexport.proof.parity import ParityResult, ParitySettings, parity
from qkexport.proof.results import Verdict
from qkexport.trace import trace

BATCH, LENGTH = torch.export.Dim("batch", max=16), torch.export.Dim("length", max=48)
AXES = ({0: BATCH, 1: LENGTH},)


def _input() -> Tensor:
    return torch.randn(2, 9, WIDTH)


def _source(module: nn.Module) -> TorchSource:
    return TorchSource("model", module, (_input(),), {}, AXES)


def _exported(module: nn.Module, folder: Path) -> Path:
    path = folder / "candidate.onnx"
    ir.save(trace(_source(module.eval()), opset=23).model, path)
    return path


def _verdict(reference: nn.Module, candidate: nn.Module, folder: Path, suite: str) -> ParityResult:
    path = _exported(candidate, folder)
    return parity(_source(reference.eval()), [path], backends=["ort-stock"], suite=suite)


class Two(nn.Module):
    """Two outputs of one shape, in either order."""

    def __init__(self, swapped: bool) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.left, self.right = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.swapped = swapped

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        left, right = self.left(x), self.right(x)
        return (right, left) if self.swapped else (left, right)


def test_outputs_that_changed_places_are_not_paired_by_names_of_their_tracing(
    tmp_path: Path,
) -> None:
    result = _verdict(Two(swapped=False), Two(swapped=True), tmp_path, "quick")
    (candidate,) = result.candidates
    assert candidate.verdict is Verdict.MISMATCHED
    assert "outputs paired by position, not by the names of their tracing" in candidate.notes


def test_outputs_in_order_match(tmp_path: Path) -> None:
    assert _verdict(Two(swapped=False), Two(swapped=False), tmp_path, "quick")


class LargeBatch(nn.Module):
    """Wrong from the fifth entry of the batch on."""

    def __init__(self, wrong: float) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.attention, self.wrong = VisionAttention(), wrong

    def forward(self, x: Tensor) -> Tensor:
        late = torch.arange(x.shape[0])[:, None, None] >= 4
        return torch.add(self.attention(x), torch.where(late, self.wrong, 0.0))


def test_an_error_of_large_batches_is_found_by_the_full_suite(tmp_path: Path) -> None:
    result = _verdict(LargeBatch(0.0), LargeBatch(0.01), tmp_path, "full")
    failing = {case.shapes["x"][0] for case in result.candidates[0].cases if not case}
    assert failing == {8}


class Rough(nn.Module):
    """Drops a part of its input, even when it is exported."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.3, self.training)


def test_a_reference_that_draws_random_numbers_is_refused(tmp_path: Path) -> None:
    path = _exported(Rough(), tmp_path)
    with pytest.raises(UnsupportedModelError, match=r"compute the same every time, got aten\.drop"):
        parity(_source(Rough().train()), [path], backends=["ort-stock"])
    assert parity(_source(Rough().eval()), [path], backends=["ort-stock"])


class Flag(nn.Module):
    """An integer that is one whatever comes in."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return 2 * x, (x.argmax(-1) >= 0).long()


def test_a_single_element_does_not_test_an_output_that_is_constant_elsewhere(
    tmp_path: Path,
) -> None:
    path = _exported(Flag(), tmp_path)
    result = parity(_source(Flag().eval()), [path], backends=["ort-stock"])
    (untested,) = result.candidates[0].untested
    assert not result
    settings = ParitySettings(allow_constant=frozenset({untested}))
    assert parity(_source(Flag().eval()), [path], backends=["ort-stock"], settings=settings)


class Mean(nn.Module):
    """A number without axes."""

    def forward(self, x: Tensor) -> Tensor:
        return x.square().mean()


def test_an_output_of_one_element_in_every_case_is_tested_by_them(tmp_path: Path) -> None:
    assert _verdict(Mean(), Mean(), tmp_path, "quick")


def test_given_inputs_of_another_type_are_a_wrong_request(tmp_path: Path) -> None:
    path = _exported(Mean(), tmp_path)
    inputs = {"x": _input().double()}
    with pytest.raises(UsageError, match=r"Input x on the reference must be torch\.float32"):
        parity(_source(Mean().eval()), [path], backends=["ort-stock"], inputs=inputs)


class Cancelling(nn.Module):
    """Its values are lost in float32: next to 1e8 numbers are 8 apart."""

    def __init__(self, offset: float) -> None:
        super().__init__()
        self.offset = offset

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.offset) - self.offset


class Zeros(nn.Module):
    """Almost zero everywhere."""

    def forward(self, x: Tensor) -> Tensor:
        return x * 1e-6


@pytest.mark.parametrize("candidate", [Cancelling(1e8), Zeros()])
def test_what_pytorch_itself_cannot_compute_counts_as_untested(
    candidate: nn.Module, tmp_path: Path
) -> None:
    path = _exported(candidate, tmp_path)
    source = _source(Cancelling(1e8))
    given = {"x": torch.rand(2, 9, WIDTH) + 0.5}
    result = parity(source, [path], backends=["ort-stock"], inputs=given)
    (judged,) = result.candidates
    assert [case.comparison is not None for case in judged.cases] == [True]
    assert judged.verdict is Verdict.MISMATCHED
    assert len(judged.untested) == 1
    assert list(judged.cases[0].vacuous.values()) == ["is lost in PyTorch's own rounding"]


def test_a_little_cancellation_still_tests(tmp_path: Path) -> None:
    given = {"x": torch.rand(2, 9, WIDTH) + 0.5}
    path = _exported(Cancelling(1e3), tmp_path)
    result = parity(_source(Cancelling(1e3)), [path], backends=["ort-stock"], inputs=given)
    assert result.candidates[0].verdict is Verdict.MATCHED
    path = _exported(Zeros(), tmp_path)
    result = parity(_source(Cancelling(1e3)), [path], backends=["ort-stock"], inputs=given)
    assert result.candidates[0].verdict is Verdict.MISMATCHED
    assert not result.candidates[0].untested
