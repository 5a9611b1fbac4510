"""Localization names the attention that errs, where in it, and what is wrong."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import onnx_ir as ir
import pytest
import torch
from qk_norm_models import HEAD_DIM, HEADS, VOCABULARY, WIDTH, randomize_norms
from torch import nn

from qkexport.export import to_form
from qkexport.export.node import attention_nodes
from qkexport.infer_types import complete_types
from qkexport.load import TorchSource
from qkexport.proof.fused_graph import fused_graph
from qkexport.proof.layers.results import LayerVerdict, Localization
from qkexport.proof.mutants import MUTANTS, Site
from qkexport.proof.parity import parity


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.q_norm, self.k_norm = nn.RMSNorm(HEAD_DIM, 1e-6), nn.RMSNorm(HEAD_DIM, 1e-6)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            p(x).unflatten(-1, (HEADS, -1)).transpose(1, 2) for p in (self.q, self.k, self.v)
        )
        y = nn.functional.scaled_dot_product_attention(
            self.q_norm(q), self.k_norm(k), v, attn_mask=mask, scale=0.9
        )
        return self.o.forward(y.transpose(1, 2).flatten(2))


def gapped_mask(seqlen: int) -> torch.Tensor:
    """Causal with gaps: no attribute says it, so it stays a mask. Key 3 is seen by itself alone."""
    triangle = torch.ones(seqlen, seqlen, dtype=torch.bool).tril()
    return triangle & (torch.arange(seqlen) % 5 != 3) | torch.eye(seqlen, dtype=torch.bool)


class ThreeLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Attention() for _ in range(3))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        mask = gapped_mask(ids.shape[1])
        for layer in self.layers:
            x = x + layer(x, mask)
        return self.head.forward(x)


@functools.cache
def _source() -> TorchSource:
    torch.manual_seed(4)
    module = ThreeLayers().eval()
    randomize_norms(module)
    return TorchSource("three", module, (torch.randint(0, VOCABULARY, (2, 7)),))


@functools.cache
def _graph() -> ir.Model:
    return fused_graph(_source())


def _localize(model: ir.Model) -> Localization:
    complete_types(model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "candidate.onnx"
        ir.save(to_form(model, "portable"), path)
        result = parity(_source(), [path], backends=["ort-stock"], layers=True)
    assert not result
    found = result.candidates[0].localization
    assert found is not None
    return found


def _mutated(name: str, index: int) -> ir.Model:
    model = _graph().clone()
    node = list(attention_nodes(model.graph))[index]
    assert MUTANTS[name].edit(Site(model, node))
    return model


@pytest.mark.parametrize("index", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("scale-default", "scale is 0.353553, the reference has 0.9"),
        ("drop-mask", "attn_mask is absent, the reference has it"),
        ("gain-off-by-one", "q_norm_weight holds other values than the reference's"),
        ("epsilon-x1000", "qk_norm_epsilon is 0.001, the reference has 1e-06"),
    ],
)
def test_the_first_attention_that_errs_is_named_with_what_is_wrong(
    name: str, reason: str, index: int
) -> None:
    found = _localize(_mutated(name, index))
    verdicts = [layer.verdict for layer in found.layers]
    assert verdicts[: index + 1] == [LayerVerdict.MATCHED] * index + [LayerVerdict.ORIGIN]
    assert LayerVerdict.ORIGIN not in verdicts[index + 1 :]
    assert found.first is not None
    assert found.first.module == f"layers.{index}"
    assert reason in found.reasons
    assert f"(layers.{index})" in found.reasons[0]


def test_a_mask_that_shows_one_key_too_many_is_traced_to_that_key() -> None:
    model = _graph().clone()
    node = next(attention_nodes(model.graph))
    mask = gapped_mask(7)
    mask[5, 3] = True
    value = ir.Value(name="wrong_mask", const_value=ir.tensor(mask.numpy()))
    value.type, value.shape = ir.TensorType(ir.DataType.BOOL), ir.Shape([7, 7])
    model.graph.register_initializer(value)
    Site(model, node).set_input("attn_mask", value)
    found = _localize(model)
    assert "attn_mask holds other values than the reference's" in found.reasons
    place = found.reasons[-1]
    assert "query 5; key 3 accounts for 100% of the difference there" in place
    assert found.place is not None
    assert (found.place.query, found.place.key) == (5, 3)
    assert found.to_dict()["place"] == {
        "batch": found.place.batch, "head": found.place.head, "query": 5, "key": 3
    }  # fmt: skip


def test_an_error_in_front_of_an_attention_is_traced_to_its_operator() -> None:
    model = _graph().clone()
    site = Site(model, list(attention_nodes(model.graph))[1])
    value = site.input("value")
    assert value is not None
    wrong = site.before("Mul", [value, site.constant([1.01], ir.DataType.FLOAT)])
    wrong.type, wrong.shape = value.type, value.shape
    site.set_input("value", wrong)
    found = _localize(model)
    assert found.layers[1].verdict is LayerVerdict.INHERITED
    assert "(layers.0) and" in found.reasons[0]
    assert "(layers.1): beyond its budget is value" in found.reasons[0]
    assert any("the first value that differs is" in reason for reason in found.reasons)


def test_an_error_behind_the_last_attention_is_traced_to_its_operator() -> None:
    model = _graph().clone()
    weight = model.graph.initializers["head.bias"]
    assert weight.const_value is not None
    weight.const_value = ir.tensor(weight.const_value.numpy() + 0.01)
    found = _localize(model)
    assert all(found.layers)
    assert found.reasons[0].startswith("every attention is within its budget")
    assert "the first value that differs is linear_12 of" in found.reasons[1]


def test_a_backend_that_computes_an_attention_wrongly_is_told_by_what_it_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node is right; the kernel behind it forgets the mask."""
    from qkexport.proof.layers import localize, taps

    def forgetful(path: Path, backend: str, inputs: object, names: object) -> object:
        model = ir.load(path)
        for node in attention_nodes(model.graph):
            MUTANTS["drop-mask"].edit(Site(model, node))
        return taps.interpreted_values(model, inputs, names, exact=False)  # type: ignore[arg-type]

    monkeypatch.setattr(localize, "candidate_values", forgetful)
    found = _localize(_mutated("swap-heads", 2))  # anything that fails
    assert found.first is not None
    assert found.first.index == 0
    expected = "the backend computes it as if: the mask is lost"
    assert any(reason.startswith(expected) for reason in found.reasons), found.reasons


def test_a_candidate_without_fused_nodes_says_how_to_get_them() -> None:
    model = to_form(_mutated("scale-default", 0), "native")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "native.onnx"
        ir.save(model, path)
        result = parity(_source(), [path], backends=["ort-stock"], layers=True)
    found = result.candidates[0].localization
    assert found is not None
    assert found.problem.endswith("convert it to the portable form")


def test_nothing_is_localized_where_nothing_fails() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "right.onnx"
        ir.save(to_form(_graph(), "portable"), path)
        result = parity(_source(), [path], backends=["ort-stock"], layers=True)
    assert result
    assert result.candidates[0].localization is None
