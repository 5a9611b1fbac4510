"""The module: drop-in for attention layers, decoding, and export."""

from __future__ import annotations

import doctest
import importlib
from typing import Any

import pytest
import torch
from torch.nn import functional

import qkexport.nn
from qkexport.errors import InvalidSpecError
from qkexport.nn import QKNormAttention
from qkexport.torch_op import onnx_translation_table

HIDDEN, HEADS, KV_HEADS, HEAD_DIM = 42, 6, 2, 8


def _attention(**options: Any) -> QKNormAttention:
    arguments = {"num_kv_heads": KV_HEADS, "head_dim": HEAD_DIM, "rotary": "after_norm"}
    module = QKNormAttention(HIDDEN, HEADS, **{**arguments, **options})
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return module.eval()


def test_the_example_in_the_docstring_runs() -> None:
    result = doctest.testmod(qkexport.nn)
    assert result.attempted > 5
    assert result.failed == 0


def test_it_takes_the_place_of_an_attention_layer_of_qwen3() -> None:
    modeling = importlib.import_module("transformers.models.qwen3.modeling_qwen3")
    config = modeling.Qwen3Config(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        rms_norm_eps=1e-5,
        attention_bias=True,
    )
    config._attn_implementation = "sdpa"
    theirs = modeling.Qwen3Attention(config, 0).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    ours = _attention(
        bias=True, qk_norm_epsilon=1e-5, causal="upper_left", norm_rounding="before_weight"
    )
    ours.load_state_dict(theirs.state_dict())
    hidden = torch.randn(2, 7, HIDDEN)
    angle = torch.rand(2, 7, HEAD_DIM // 2).repeat(1, 1, 2)
    rows = angle.cos(), angle.sin()
    mask = torch.ones(7, 7, dtype=torch.bool).tril()[None, None]
    with torch.no_grad():
        expected = theirs(hidden, rows, mask)[0]
        torch.testing.assert_close(ours(hidden, rotary_rows=rows), expected, rtol=1e-4, atol=1e-4)


def test_its_tables_are_those_of_the_rotary_embedding_of_qwen3() -> None:
    modeling = importlib.import_module("transformers.models.qwen3.modeling_qwen3")
    config = modeling.Qwen3Config(hidden_size=HIDDEN, num_attention_heads=HEADS, head_dim=HEAD_DIM)
    base = config.rope_parameters["rope_theta"]
    cos, sin = modeling.Qwen3RotaryEmbedding(config)(torch.zeros(1), torch.arange(50)[None])
    ours = _attention(rotary_base=base, max_positions=50)
    assert ours.cos_cache is not None
    assert ours.sin_cache is not None
    torch.testing.assert_close(ours.cos_cache, cos[0, :, : HEAD_DIM // 2])
    torch.testing.assert_close(ours.sin_cache, sin[0, :, : HEAD_DIM // 2])


@pytest.mark.parametrize("kv_cache", ["concat", "static"])
def test_decoding_continues_where_the_cache_ends(kv_cache: str) -> None:
    whole = _attention(causal="lower_right")
    module = _attention(causal="lower_right", kv_cache=kv_cache)
    module.load_state_dict(whole.state_dict())
    hidden = torch.randn(2, 6, HIDDEN)
    expected = whole(hidden)
    cache = None
    if kv_cache == "static":
        cache = torch.zeros(2, KV_HEADS, 9, HEAD_DIM), torch.zeros(2, KV_HEADS, 9, HEAD_DIM)
    outputs = []
    for start, end in ((0, 3), (3, 4), (4, 6)):
        lengths = torch.full((2,), end) if kv_cache == "static" else None
        output, cache = module(
            hidden[:, start:end], cache=cache, kv_lengths=lengths, use_cache=True
        )
        outputs.append(output)
    torch.testing.assert_close(torch.cat(outputs, 1), expected, rtol=1e-4, atol=1e-5)


def test_batch_entries_may_stand_at_different_positions() -> None:
    module = _attention()
    hidden = torch.randn(1, 3, HIDDEN).expand(2, -1, -1)
    ids = torch.tensor([[0, 1, 2], [5, 6, 7]])
    together = module(hidden, position_ids=ids)
    torch.testing.assert_close(together[1:], module(hidden[1:], position_ids=ids[1:]))
    torch.testing.assert_close(together[0], together[1], rtol=1e-4, atol=1e-4)  # RoPE is relative


def test_cross_attention_reads_another_sequence() -> None:
    module = _attention(rotary="none")
    hidden, other = torch.randn(2, 3, HIDDEN), torch.randn(2, 11, HIDDEN)
    query = functional.rms_norm(
        module.q_proj(hidden).unflatten(-1, (HEADS, HEAD_DIM)),
        (HEAD_DIM,),
        module.q_norm.weight,
        1e-6,
    )
    key = functional.rms_norm(
        module.k_proj(other).unflatten(-1, (KV_HEADS, HEAD_DIM)),
        (HEAD_DIM,),
        module.k_norm.weight,
        1e-6,
    )
    value = module.v_proj(other).unflatten(-1, (KV_HEADS, HEAD_DIM))
    heads = functional.scaled_dot_product_attention(
        query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), enable_gqa=True
    )
    expected = module.o_proj(heads.transpose(1, 2).flatten(2))
    torch.testing.assert_close(module(hidden, other), expected, rtol=1e-4, atol=1e-4)


def test_without_a_hidden_size_there_are_no_projections() -> None:
    module = QKNormAttention(None, 4, 2, 8)
    assert set(module.state_dict()) == {"q_norm.weight", "k_norm.weight"}
    output = module(torch.randn(1, 3, 32), torch.randn(1, 5, 16), torch.randn(1, 5, 16))
    assert output.shape == (1, 3, 32)


SHAPES: dict[str, tuple[dict[str, Any], dict[str, tuple[int, ...]]]] = {
    "all heads": ({}, {"q_norm.weight": (8,), "k_norm.weight": (8,)}),
    "each head": (
        {"norm_per_head": True, "norm_bias": True, "qk_norm": "layer"},
        {
            "q_norm.weight": (6, 8),
            "q_norm.bias": (6, 8),
            "k_norm.weight": (2, 8),
            "k_norm.bias": (2, 8),
        },
    ),
    "hidden": ({"norm_axis": "hidden"}, {"q_norm.weight": (48,), "k_norm.weight": (16,)}),
    "temperature only": (
        {"norm_affine": False, "learned_scale": True, "qk_norm": "l2", "scale": 1.0},
        {"head_scale": (6,)},
    ),
}


@pytest.mark.parametrize(("options", "expected"), SHAPES.values(), ids=SHAPES)
def test_parameters_have_the_shapes_of_the_norm_and_all_of_them_learn(
    options: dict[str, Any], expected: dict[str, tuple[int, ...]]
) -> None:
    module = _attention(**options)
    parameters = dict(module.named_parameters())
    shapes = {name: tuple(x.shape) for name, x in parameters.items() if "proj" not in name}
    assert shapes == expected
    torch.autograd.backward(module(torch.randn(2, 3, HIDDEN)).square().sum())
    assert all(x.grad is not None and x.grad.any() for x in parameters.values())


def test_gains_of_keys_that_are_used_as_they_are_are_left_out() -> None:
    module = _attention(normalize_key=False)
    output = module(torch.randn(2, 3, HIDDEN))
    assert output.shape == (2, 3, HIDDEN)


def test_half_precision_keeps_the_tables_in_float32() -> None:
    module = _attention(learned_scale=True).half()
    assert module.q_norm.weight is not None
    assert module.q_norm.weight.dtype == torch.float16
    assert module.cos_cache is not None
    assert module.cos_cache.dtype == torch.float32
    assert module(torch.randn(1, 3, HIDDEN).half()).dtype == torch.float16


def test_tables_follow_to_another_device() -> None:
    module = _attention().to("meta")
    assert module.cos_cache is not None
    assert module.cos_cache.device.type == "meta"
    assert module(torch.randn(1, 3, HIDDEN, device="meta")).shape == (1, 3, HIDDEN)


def test_a_position_past_the_tables_is_refused() -> None:
    module = _attention(max_positions=4)
    with pytest.raises(InvalidSpecError, match=r"position_ids must lie in \[0, 4\), got"):
        module(torch.randn(1, 5, HIDDEN))


@pytest.mark.parametrize("hidden_size", [None, 43])
def test_a_head_dim_that_nothing_tells_is_refused(hidden_size: int | None) -> None:
    with pytest.raises(InvalidSpecError) as refusal:
        QKNormAttention(hidden_size, 6)
    assert f"that num_heads divides, got {hidden_size} and 6." in str(refusal.value)


def test_the_head_dim_follows_from_the_hidden_size() -> None:
    assert QKNormAttention(48, 6).head_dim == 8


def test_it_compiles_into_one_graph() -> None:
    module = _attention(causal="upper_left", learned_scale=True)
    hidden = torch.randn(2, 5, HIDDEN)
    compiled = torch.compile(module, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(hidden), module(hidden))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_it_exports_as_one_node() -> None:
    module = _attention(causal="upper_left")
    program = torch.onnx.export(
        module,
        (torch.randn(2, 5, HIDDEN),),
        dynamo=True,
        opset_version=24,
        dynamic_shapes={"query": {0: "batch", 1: "seqlen"}},
        custom_translation_table=onnx_translation_table(),
        verbose=False,
    )
    assert program is not None
    nodes = [node for node in program.model.graph if node.domain == "qkexport"]
    assert len(nodes) == 1
    assert str(nodes[0].outputs[0].shape) == f"[batch,seqlen,{HEADS * HEAD_DIM}]"
