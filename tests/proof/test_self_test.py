"""The self-test kills every mutant of real architectures, and notices a blind comparison."""

from __future__ import annotations

import functools

import pytest
import torch
from exported_attention import exported_attention
from more_mutants import MORE_MUTANTS
from qk_norm_models import HEAD_DIM, HEADS, WIDTH, VisionAttention
from torch import nn
from zoo import FAMILIES
from zoo.family import Family

from qkexport.compare import Comparison, OutputComparison, Status
from qkexport.errors import UnsupportedModelError, UsageError
from qkexport.load import TorchSource
from qkexport.proof import candidate
from qkexport.proof.mutants import MUTANTS, Mutant, Site
from qkexport.proof.self_test import SelfTestResult, self_test

ARCHITECTURES = ("qwen3", "timm vit", "henry 2020", "llama 3.2 vision", "enable_gqa")
MORE = ("gemma 3", "olmo 2", "cohere", "hunyuan dense", "swin v2", "stablelm", "phi", "olmo 3")


def _family(name: str) -> Family:
    return next(family for family in FAMILIES if family.name == name)


def _source(name: str) -> TorchSource:
    torch.manual_seed(1)
    family = _family(name)
    sample = family.build(family.implementations[0])
    return TorchSource(
        name, sample.module, tuple(sample.args), dict(sample.kwargs), sample.dynamic_shapes
    )


def _check(name: str) -> None:
    result = self_test(_source(name))
    assert result.control, result.control.reason
    assert [entry.mutant.name for entry in result.survivors] == []
    assert [entry.mutant.name for entry in result.mutants if entry.equivalent] == []
    assert result.kill_rate == 1
    assert len(result.applied) >= 12
    assert result


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_mutant_of_an_architecture_is_killed(name: str) -> None:
    _check(name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", MORE)
def test_every_mutant_of_more_architectures_is_killed(name: str) -> None:
    _check(name)


REVIEWED = ("gemma 3", "timesfm 2.5", "llama 4", "qwen3 cache", "query norm only", "softcap")


@pytest.mark.parametrize(
    "name",
    [*(pytest.param(name, marks=pytest.mark.nightly) for name in REVIEWED[:-1]), REVIEWED[-1]],
)
def test_mutants_that_a_reviewer_made_up_are_killed_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for mutant in MORE_MUTANTS.values():
        monkeypatch.setitem(MUTANTS, mutant.name, mutant)
    result = self_test(_source(name), names=tuple(MORE_MUTANTS))
    assert result.control, result.control.reason
    assert [entry.mutant.name for entry in result.survivors] == []
    assert len(result.applied) >= 7


@functools.cache
def _vision_result() -> SelfTestResult:
    torch.manual_seed(0)
    x = torch.randn(2, 7, WIDTH)
    axes = {0: torch.export.Dim("b", max=9), 1: torch.export.Dim("s", max=50)}
    return self_test(TorchSource("vit", VisionAttention().eval(), (x,), {}, (axes,)))


def test_a_result_tells_what_noticed_each_mutant() -> None:
    result = _vision_result()
    assert result
    document = result.to_dict()
    assert document["kill_rate"] == 1
    by_name = {entry["name"]: entry for entry in document["mutants"]}
    assert by_name["swap-heads"]["verdict"] == "killed"
    assert "traced normal" in by_name["swap-heads"]["by"]
    assert by_name["rope-order"]["verdict"] == "does not apply"


def test_one_mutant_can_be_asked_for() -> None:
    exported = exported_attention()
    result = self_test(exported.path, names=["drop-mask"])
    assert [entry.mutant.name for entry in result.mutants] == ["drop-mask"]
    assert result
    with pytest.raises(UsageError, match="Mutant must be a known one, got 'typo'"):
        self_test(exported.path, names=["typo"])


def test_a_mutant_that_does_not_run_is_not_called_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(site: Site) -> bool:
        site.set_input("query", site.before("NoSuchOperator", [site.input("query")]))
        return True

    monkeypatch.setitem(MUTANTS, "broken", Mutant("broken", "It does not run", broken))
    result = self_test(exported_attention().path, names=["broken", "swap-heads"])
    assert [entry.verdict for entry in result.mutants] == ["crashed", "killed"]
    assert "NoSuchOperator" in result.mutants[0].by
    assert result.kill_rate == 0.5
    assert not result


def test_every_attention_can_be_tried() -> None:
    result = self_test(_source("timm vit"), names=["swap-heads"], every_node=True)
    assert len({entry.node for entry in result.applied}) == 2
    assert result


def test_a_comparison_that_lets_everything_pass_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def blind(found: dict[str, torch.Tensor], *_: object, **__: object) -> Comparison:
        return Comparison(tuple(OutputComparison(name, Status.MATCHED) for name in found))

    monkeypatch.setattr(candidate, "compare_outputs", blind)
    result = self_test(exported_attention().path, names=["drop-mask", "swap-heads"])
    assert not result
    assert result.kill_rate == 0
    assert len(result.survivors) == 2


class Silent(nn.Module):
    """Its attention is multiplied by a gate of zero, as adaptive norms begin training."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = VisionAttention()
        self.gate = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.add(x, self.gate * self.attention(x))


def test_a_model_whose_output_ignores_its_attention_proves_nothing() -> None:
    source = TorchSource("silent", Silent().eval(), (torch.randn(2, 7, WIDTH),))
    result = self_test(source, names=["swap-heads", "drop-norm"])
    assert result.control
    assert {entry.verdict for entry in result.mutants} == {"equivalent"}
    assert not result


class Cosine(nn.Module):
    """L2 norm of projections with a bias: no input brings them near the epsilon."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        nn.init.constant_(self.qkv.bias, 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, HEAD_DIM)).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = (nn.functional.normalize(y, dim=-1) for y in (q, k))
        y = nn.functional.scaled_dot_product_attention(q, k, v, scale=10.0)
        return y.transpose(1, 2).flatten(2)


def test_an_epsilon_that_is_never_reached_is_an_equivalent_mutant() -> None:
    source = TorchSource("cosine", Cosine().eval(), (torch.randn(2, 7, WIDTH),))
    result = self_test(source, names=["epsilon-x1000", "swap-heads"])
    assert [entry.verdict for entry in result.mutants] == ["equivalent", "killed"]
    assert result.kill_rate == 1


def test_a_model_without_qk_norm_is_refused() -> None:
    module = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True).eval()
    x = torch.randn(2, 7, WIDTH)
    with pytest.raises(UnsupportedModelError, match="must have an attention with QK norm"):
        self_test(TorchSource("mha", module, (x, x, x), {"need_weights": False}))
