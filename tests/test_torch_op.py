"""The PyTorch op: right, opaque to compilers, exportable and differentiable."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from attention_cases import ALL_OUTPUTS, CASES, AttentionCase, attention_cases
from hypothesis import given, settings
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

import qkexport.torch_native
from qkexport.errors import InvalidSpecError
from qkexport.reference import reference_attention
from qkexport.signature import INPUT_NAMES
from qkexport.spec import AttentionSpec
from qkexport.torch_op import op_attributes

OP = torch.ops.qkexport.qk_norm_attention
OP_WITH_CACHE = torch.ops.qkexport.qk_norm_attention_with_cache
SPEC: dict[str, Any] = {"num_heads": 4, "num_kv_heads": 2, "scale": 0.25}
HALF = {"qk_norm_epsilon": 1e-5, "norm_rounding": "before_weight"}


def _arguments(inputs: dict[str, torch.Tensor]) -> list[torch.Tensor | None]:
    arguments = [inputs.get(name) for name in INPUT_NAMES]
    while arguments[-1] is None:
        arguments.pop()
    return arguments


def _call(case: AttentionCase) -> tuple[torch.Tensor, ...]:
    outputs: tuple[torch.Tensor, ...] = OP_WITH_CACHE(
        *_arguments(case.inputs), **op_attributes(case.spec)
    )
    return outputs


def _qkv(seqlen: int = 5, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    return {
        "query": torch.randn(2, seqlen, 32).to(dtype),
        "key": torch.randn(2, seqlen, 16).to(dtype),
        "value": torch.randn(2, seqlen, 12).to(dtype),
    }


@settings(CASES, max_examples=150)
@given(attention_cases())
def test_the_op_computes_what_the_reference_does(case: AttentionCase) -> None:
    expected = reference_attention(case.spec, case.inputs, outputs=ALL_OUTPUTS)
    for name, x in zip(ALL_OUTPUTS, _call(case), strict=True):
        torch.testing.assert_close(x.double(), expected[name], rtol=1e-4, atol=1e-4)
    alone = OP(*_arguments(case.inputs), **op_attributes(case.spec))
    torch.testing.assert_close(alone.double(), expected["output"], rtol=1e-4, atol=1e-4)


@settings(CASES, max_examples=150)
@given(attention_cases(dtype=torch.float16))
def test_the_fake_has_the_shapes_types_and_strides_of_the_real(case: AttentionCase) -> None:
    real = _call(case)
    with FakeTensorMode() as mode:
        inputs: dict[str, torch.Tensor] = {
            name: mode.from_tensor(x) for name, x in case.inputs.items()
        }
        fake = _call(AttentionCase(case.spec, inputs))
    for x, y in zip(real, fake, strict=True):
        assert (x.shape, x.dtype, x.stride()) == (y.shape, y.dtype, y.stride())


def _random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


OPCHECK_CASES: dict[str, tuple[dict[str, Any], Any]] = {
    "bare": ({}, dict),
    "gains, rope, causal": (
        {"rotary": "after_norm", "causal": "upper_left"},
        lambda: {
            "q_norm_weight": _random(8),
            "k_norm_weight": _random(2, 8),
            "cos_cache": _random(1, 5, 4),
            "sin_cache": _random(1, 5, 4),
        },
    ),
    "position ids and mask": (
        {"rotary": "before_norm", "rotary_dim": 4, "rotary_interleaved": True},
        lambda: {
            "cos_cache": _random(9, 4),
            "sin_cache": _random(9, 4),
            "position_ids": torch.randint(0, 9, (2, 5)),
            "attn_mask": _random(2, 1, 5, 5) > 0,
        },
    ),
    "past, temperature, window": (
        {"causal": "lower_right", "window_left": 2, "softcap": 5.0, "qk_norm": "l2"},
        lambda: {
            "head_scale": _random(4),
            "past_key": _random(2, 2, 3, 8),
            "past_value": _random(2, 2, 3, 6),
        },
    ),
    "static cache": (
        {"kv_cache": "static", "causal": "lower_right", "qk_norm": "layer"},
        lambda: {
            "past_key": _random(2, 2, 9, 8),
            "past_value": _random(2, 2, 9, 6),
            "kv_lengths": torch.tensor([9, 6]),
        },
    ),
    "segments": (
        {"norm_axis": "hidden"},
        lambda: {
            "segment_ends": torch.tensor([2, 5]),
            "q_norm_weight": _random(2, 32),
            "k_norm_bias": _random(2, 16),
        },
    ),
    "keys as they are": ({"normalize_key": False}, dict),
}


@pytest.mark.parametrize(("attributes", "extra"), OPCHECK_CASES.values(), ids=OPCHECK_CASES)
@pytest.mark.parametrize("differentiated", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("op", [OP, OP_WITH_CACHE], ids=["output", "cache"])
def test_opcheck_finds_nothing(
    op: Any, differentiated: bool, attributes: dict[str, Any], extra: Any
) -> None:
    inputs = {**_qkv(), **extra()}
    if differentiated:
        inputs = {
            name: x.requires_grad_() if x.is_floating_point() else x for name, x in inputs.items()
        }
    torch.library.opcheck(op.default, tuple(_arguments(inputs)), {**SPEC, **attributes})


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_opcheck_finds_nothing_in_half_precision(dtype: torch.dtype) -> None:
    inputs = {name: x.requires_grad_() for name, x in _qkv(dtype=dtype).items()}
    torch.library.opcheck(OP.default, tuple(inputs.values()), {**SPEC, **HALF})


def test_nothing_that_comes_out_is_what_went_in() -> None:
    """Keys as they are, and values without a past, pass through untouched."""
    inputs = {
        "query": torch.randn(2, 4, 5, 8),
        "key": torch.randn(2, 2, 5, 8),
        "value": torch.randn(2, 2, 5, 8),
    }
    outputs = OP_WITH_CACHE(*inputs.values(), **SPEC, normalize_key=False)
    torch.testing.assert_close(outputs[1], inputs["key"])
    storages = {x.untyped_storage().data_ptr() for x in inputs.values()}
    assert not storages & {x.untyped_storage().data_ptr() for x in outputs}


def test_strided_views_are_read_as_what_they_are() -> None:
    packed = torch.randn(2, 5, 4, 24)
    views = [x.transpose(1, 2) for x in packed.chunk(3, -1)]
    assert not any(x.is_contiguous() for x in views)
    spec: dict[str, Any] = {"num_heads": 4, "num_kv_heads": 4, "scale": 1.0}
    expected = OP(*(x.contiguous() for x in views), **spec)
    torch.testing.assert_close(OP(*views, **spec), expected)


# Which implementation runs.


def test_the_native_kernel_runs_where_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    seven = torch.full((2, 5, 24), 7.0)
    monkeypatch.setattr(
        qkexport.torch_native, "run_native", lambda *_args, **_options: {"output": seven}
    )
    assert OP(*_qkv().values(), **SPEC).eq(7).all()


def test_the_reference_runs_where_the_native_kernel_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(qkexport.torch_native, "run_native", lambda *_args, **_options: None)
    inputs = _qkv()
    spec = AttentionSpec(**SPEC)
    expected = reference_attention(spec, inputs, compute_dtype=torch.float32)["output"]
    torch.testing.assert_close(OP(*inputs.values(), **SPEC), expected, rtol=0, atol=0)


# Gradients, against the same attention composed of PyTorch's own differentiable functions.


def _rms(x: torch.Tensor, weight: torch.Tensor, num_heads: int) -> torch.Tensor:
    heads = x.unflatten(-1, (num_heads, -1)).transpose(1, 2)  # type: ignore[no-untyped-call]
    return functional.rms_norm(heads, (8,), weight, eps=1e-6)


def _half_turn(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def _composed(leaves: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    x = {name: leaf.double() for name, leaf in leaves.items()}
    query = _half_turn(_rms(x["query"], x["q_norm_weight"], 4), x["cos_cache"], x["sin_cache"])
    key = _half_turn(_rms(x["key"], x["k_norm_weight"], 2), x["cos_cache"], x["sin_cache"])
    value = x["value"].unflatten(-1, (2, -1)).transpose(1, 2)  # type: ignore[no-untyped-call]
    key, value = torch.cat((x["past_key"], key), 2), torch.cat((x["past_value"], value), 2)
    output = functional.scaled_dot_product_attention(
        query * x["head_scale"][:, None, None],
        key,
        value,
        attn_mask=x["attn_mask"],
        scale=0.25,
        enable_gqa=True,
    )
    return output.transpose(1, 2).flatten(2), key, value


def _leaves() -> dict[str, torch.Tensor]:
    leaves = {
        **_qkv(),
        "q_norm_weight": torch.randn(8),
        "k_norm_weight": torch.randn(8),
        "cos_cache": torch.randn(5, 4),
        "sin_cache": torch.randn(5, 4),
        "attn_mask": torch.randn(2, 4, 5, 8),
        "head_scale": torch.randn(4),
        "past_key": torch.randn(2, 2, 3, 8),
        "past_value": torch.randn(2, 2, 3, 6),
    }
    return {name: x.requires_grad_() for name, x in leaves.items()}


def _op_on_leaves(leaves: dict[str, torch.Tensor]) -> Any:
    inputs = dict(leaves)
    for name in ("cos_cache", "sin_cache"):
        inputs[name] = leaves[name][None]
    return OP_WITH_CACHE(*_arguments(inputs), **SPEC, rotary="after_norm")


def _pulled_back(outputs: Any, leaves: dict[str, torch.Tensor], seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    total = sum((x * torch.randn(x.shape, generator=generator).to(x.dtype)).sum() for x in outputs)
    return list(torch.autograd.grad(total, list(leaves.values())))


def test_gradients_of_every_input_are_those_of_the_composition() -> None:
    leaves = _leaves()
    expected = _pulled_back(_composed(leaves), leaves, seed=1)
    computed = _pulled_back(_op_on_leaves(leaves), leaves, seed=1)
    for name, x, y in zip(leaves, computed, expected, strict=True):
        assert torch.allclose(x, y, rtol=1e-4, atol=1e-5), name


def test_a_compiled_training_step_has_the_same_gradients() -> None:
    leaves = _leaves()
    expected = _pulled_back(_op_on_leaves(leaves), leaves, seed=2)
    compiled = torch.compile(_op_on_leaves, fullgraph=True, backend="aot_eager")
    computed = _pulled_back(compiled(leaves), leaves, seed=2)
    for x, y in zip(computed, expected, strict=True):
        torch.testing.assert_close(x, y)


def test_only_the_inputs_that_ask_for_a_gradient_get_one() -> None:
    inputs = _qkv()
    inputs["key"].requires_grad_()
    torch.autograd.backward(OP(*inputs.values(), **SPEC).sum())
    assert [x.grad is not None for x in inputs.values()] == [False, True, False]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_have_the_type_of_their_input(dtype: torch.dtype) -> None:
    inputs = {name: x.requires_grad_() for name, x in _qkv(dtype=dtype).items()}
    weight = torch.randn(8, requires_grad=True)
    torch.autograd.backward(OP(*inputs.values(), weight, **SPEC).sum())
    assert {x.grad.dtype for x in inputs.values() if x.grad is not None} == {dtype}
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32


def test_a_second_derivative_is_refused() -> None:
    inputs = {name: x.requires_grad_() for name, x in _qkv().items()}
    output = OP(*inputs.values(), **SPEC)
    (grad,) = torch.autograd.grad(output.sum(), inputs["query"], create_graph=True)
    with pytest.raises(RuntimeError, match="qk_norm_attention_backward"):
        torch.autograd.backward(grad.sum())


# Compilers and exporters.


class Layer(nn.Module):
    """Projections around the op."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.kv = nn.Linear(10, 32), nn.Linear(10, 16)
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        arguments = {
            "query": self.q(x),
            "key": self.kv(x),
            "value": self.kv(x),
            "q_norm_weight": self.weight,
            "attn_mask": mask,
        }
        output: torch.Tensor = OP(*_arguments(arguments), **SPEC, causal="upper_left")
        return output * 2


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_layer_compiles_into_one_graph(backend: str, dynamic: bool) -> None:
    layer = Layer()
    compiled = torch.compile(layer, fullgraph=True, backend=backend, dynamic=dynamic)
    for seqlen in (5, 7):
        x, mask = torch.randn(2, seqlen, 10), torch.randn(seqlen, seqlen)
        torch.testing.assert_close(compiled(x, mask), layer(x, mask))


# torch itself copies what it deprecates.
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_an_exported_layer_holds_one_node_and_runs_at_other_sizes() -> None:
    layer = Layer().eval()
    batch, seqlen = torch.export.Dim("batch"), torch.export.Dim("seqlen")
    program = torch.export.export(
        layer,
        (torch.randn(2, 5, 10), torch.randn(5, 5)),
        dynamic_shapes=({0: batch, 1: seqlen}, {0: seqlen, 1: seqlen}),
    )
    for graph in (program.graph, program.run_decompositions({}).graph):
        assert [node.target for node in graph.nodes].count(OP.default) == 1
    for batch_size, length in ((1, 1), (3, 11)):
        x, mask = torch.randn(batch_size, length, 10), torch.randn(length, length)
        torch.testing.assert_close(program.module()(x, mask), layer(x, mask))


def test_present_lengths_are_expressions_of_past_and_new_lengths() -> None:
    class Step(nn.Module):
        def forward(
            self,
            q: torch.Tensor,
            kv: torch.Tensor,
            past_key: torch.Tensor,
            past_value: torch.Tensor,
        ) -> Any:
            inputs = {"query": q, "key": kv, "value": kv}
            inputs |= {"past_key": past_key, "past_value": past_value}
            return OP_WITH_CACHE(*_arguments(inputs), **SPEC)[1]

    past, new = torch.export.Dim("past"), torch.export.Dim("new")
    example = (
        torch.randn(2, 3, 32),
        torch.randn(2, 3, 16),
        torch.randn(2, 2, 5, 8),
        torch.randn(2, 2, 5, 8),
    )
    program = torch.export.export(
        Step(), example, dynamic_shapes=({1: new}, {1: new}, {2: past}, {2: past})
    )
    (output,) = (node for node in program.graph.nodes if node.op == "output")
    length = output.args[0][0].meta["val"].shape[2]
    assert not isinstance(length, int)
    assert len(length.node.expr.free_symbols) == 2


# Refusals.


def test_a_known_wrong_shape_is_refused_while_tracing() -> None:
    class Wrong(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return OP(x, x, x, torch.ones(9), num_heads=1, num_kv_heads=1, scale=1.0)

    with pytest.raises(Exception, match=re.escape("q_norm_weight must be [8] or [1,8]")):
        torch.export.export(Wrong(), (torch.randn(1, 3, 8),))


def test_a_wrong_shape_is_refused_at_run_time() -> None:
    inputs = _qkv()
    inputs["key"] = torch.randn(2, 5, 20)
    with pytest.raises(InvalidSpecError, match=r"head_dim of query and key must be equal"):
        OP(*inputs.values(), **SPEC)


def test_a_wrong_attribute_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match=r"causal is not a known value, got 'yes'"):
        OP(*_qkv().values(), **SPEC, causal="yes")


def test_an_attribute_without_a_default_must_be_given() -> None:
    with pytest.raises(RuntimeError, match="scale"):
        OP(*_qkv().values(), num_heads=4, num_kv_heads=2)


def test_a_position_outside_the_cache_is_refused() -> None:
    inputs = {**_qkv(), "cos_cache": torch.randn(3, 4), "sin_cache": torch.randn(3, 4)}
    inputs["position_ids"] = torch.arange(5)[None]
    with pytest.raises(InvalidSpecError, match=r"position_ids must lie in \[0, 3\)"):
        OP(*_arguments(inputs), **SPEC, rotary="after_norm")
