"""The reference against the attention modules that real models are made of.

Each module runs as its library wrote it. What its projections give is what the reference is given,
and what its output projection is given is what the reference must give.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from timm_modules import import_timm
from torch import nn

from qkexport.reference import reference_attention
from qkexport.spec import AttentionSpec

BATCH, SEQLEN, HEADS, KV_HEADS, HEAD_DIM, HIDDEN = 2, 7, 6, 2, 8, 42
EPS = 1e-5

# Models compute in float32; the reference is exact.
TOLERANCE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}


def _modeling(family: str) -> Any:
    return importlib.import_module(f"transformers.models.{family}.modeling_{family}")


def _spec(**changes: Any) -> AttentionSpec:
    return AttentionSpec(
        **{
            "num_heads": HEADS,
            "num_kv_heads": KV_HEADS,
            "scale": HEAD_DIM**-0.5,
            "qk_norm_epsilon": EPS,
            **changes,
        }
    )


def _config(kind: Any, **changes: Any) -> Any:
    config = kind(
        hidden_size=HIDDEN,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        rms_norm_eps=EPS,
        **{"num_hidden_layers": 2, **changes},
    )
    config._attn_implementation = "eager"
    return config


def _randomized(module: Any) -> Any:
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module.eval()


def _rotary_rows(turns: int = 2) -> tuple[torch.Tensor, torch.Tensor]:
    """Cos and sin `[B,S,D/2]`, another angle in every batch entry."""
    angles = torch.rand(BATCH, SEQLEN, HEAD_DIM // 2) * turns * math.pi
    return angles.cos(), angles.sin()


def _causal_mask() -> torch.Tensor:
    """The additive mask that models are given: zero and the most negative float."""
    hidden = torch.ones(SEQLEN, SEQLEN, dtype=torch.bool).triu(1)
    return torch.zeros(1, 1, SEQLEN, SEQLEN).masked_fill(hidden, torch.finfo(torch.float32).min)


def _observed(
    module: Any, call: Callable[[], Any], projections: dict[str, str]
) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """What the projections gave to the attention, and what it gave to the output projection."""
    seen: dict[str, torch.Tensor] = {}
    handles = [
        getattr(module, attribute).register_forward_hook(
            lambda _module, _args, output, name=name: seen.__setitem__(name, output)
        )
        for name, attribute in projections.items()
    ]
    handles.append(
        module.o_proj.register_forward_pre_hook(
            lambda _module, args: seen.__setitem__("output", args[0])
        )
    )
    with torch.no_grad():
        call()
    for handle in handles:
        handle.remove()
    output = seen.pop("output")
    return seen, output


QKV = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}


def _check_language_model(
    module: Any,
    rope: Any,
    attributes: dict[str, Any],
    inputs: dict[str, torch.Tensor],
    mask: torch.Tensor | None = None,
) -> None:
    mask = _causal_mask() if mask is None else mask
    hidden = torch.randn(BATCH, SEQLEN, HIDDEN)
    seen, expected = _observed(module, lambda: module(hidden, rope, mask), QKV)
    output = reference_attention(_spec(**attributes), {**seen, **inputs})["output"]
    torch.testing.assert_close(output.float(), expected, **TOLERANCE)


def _full_width(cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)


def test_qwen3() -> None:
    module = _randomized(
        _modeling("qwen3").Qwen3Attention(_config(_modeling("qwen3").Qwen3Config), 0)
    )
    cos, sin = _rotary_rows()
    _check_language_model(
        module,
        _full_width(cos, sin),
        {"rotary": "after_norm", "norm_rounding": "before_weight", "causal": "upper_left"},
        {
            "q_norm_weight": module.q_norm.weight,
            "k_norm_weight": module.k_norm.weight,
            "cos_cache": cos,
            "sin_cache": sin,
        },
    )


def test_qwen3_with_its_caches_as_they_are_and_its_mask_as_a_mask() -> None:
    module = _randomized(
        _modeling("qwen3").Qwen3Attention(_config(_modeling("qwen3").Qwen3Config), 0)
    )
    cos, sin = _full_width(*_rotary_rows())
    padding = torch.zeros(BATCH, 1, 1, SEQLEN)
    padding[1, ..., :2] = torch.finfo(torch.float32).min
    mask = _causal_mask() + padding
    _check_language_model(
        module,
        (cos, sin),
        {"rotary": "after_norm"},
        {
            "q_norm_weight": module.q_norm.weight,
            "k_norm_weight": module.k_norm.weight,
            "cos_cache": cos,
            "sin_cache": sin,
            "attn_mask": mask.clamp_min(torch.finfo(torch.float32).min),
        },
        mask.clamp_min(torch.finfo(torch.float32).min),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_qwen3_in_half_precision_rounds_the_norm_as_before_weight_does(dtype: torch.dtype) -> None:
    norm = _randomized(_modeling("qwen3").Qwen3RMSNorm(HEAD_DIM, eps=EPS)).to(dtype)
    x = torch.randn(BATCH, HEADS, 257, HEAD_DIM).to(dtype)
    present = {
        rounding: reference_attention(
            _spec(num_kv_heads=HEADS, norm_rounding=rounding),
            {"query": x, "key": x, "value": x, "k_norm_weight": norm.weight},
            compute_dtype=torch.float32,
            outputs=("output", "present_key", "present_value"),
        )["present_key"]
        for rounding in ("before_weight", "after_weight")
    }
    torch.testing.assert_close(present["before_weight"], norm(x), rtol=0, atol=0)
    assert not torch.equal(present["after_weight"], norm(x))


def test_gemma3_in_half_precision_rounds_once() -> None:
    norm = _randomized(_modeling("gemma3").Gemma3RMSNorm(HEAD_DIM, eps=EPS)).half()
    x = torch.randn(BATCH, HEADS, 257, HEAD_DIM).half()
    spec = _spec(num_kv_heads=HEADS)
    present = reference_attention(
        spec,
        {"query": x, "key": x, "value": x, "k_norm_weight": 1.0 + norm.weight.float()},
        compute_dtype=torch.float32,
        outputs=("output", "present_key", "present_value"),
    )["present_key"]
    torch.testing.assert_close(present, norm(x), rtol=0, atol=0)


def test_gemma3_with_a_scale_of_its_own_and_gains_of_one_plus_w() -> None:
    config = _config(_modeling("gemma3").Gemma3TextConfig, query_pre_attn_scalar=168)
    module = _randomized(_modeling("gemma3").Gemma3Attention(config, 0))
    cos, sin = _rotary_rows()
    _check_language_model(
        module,
        _full_width(cos, sin),
        {"rotary": "after_norm", "causal": "lower_right", "scale": 168**-0.5},
        {
            "q_norm_weight": 1 + module.q_norm.weight,
            "k_norm_weight": 1 + module.k_norm.weight,
            "cos_cache": cos,
            "sin_cache": sin,
        },
    )


def test_olmo2_normalizes_all_heads_at_once() -> None:
    module = _randomized(
        _modeling("olmo2").Olmo2Attention(_config(_modeling("olmo2").Olmo2Config), 0)
    )
    cos, sin = _rotary_rows()
    _check_language_model(
        module,
        _full_width(cos, sin),
        {"rotary": "after_norm", "causal": "upper_left", "norm_axis": "hidden"},
        {
            "q_norm_weight": module.q_norm.weight,
            "k_norm_weight": module.k_norm.weight,
            "cos_cache": cos,
            "sin_cache": sin,
        },
    )


def test_cohere_has_a_layer_norm_gain_a_head_and_interleaved_pairs() -> None:
    config = _modeling("cohere").CohereConfig(
        hidden_size=HEADS * HEAD_DIM,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        layer_norm_eps=EPS,
        use_qk_norm=True,
    )
    config._attn_implementation = "eager"
    module = _randomized(_modeling("cohere").CohereAttention(config, 0))
    cos, sin = _rotary_rows()
    rope = cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
    hidden = torch.randn(BATCH, SEQLEN, HEADS * HEAD_DIM)
    seen, expected = _observed(module, lambda: module(hidden, rope, _causal_mask()), QKV)
    spec = _spec(
        qk_norm="layer",
        rotary="after_norm",
        rotary_interleaved=True,
        causal="upper_left",
    )
    inputs = {
        **seen,
        "q_norm_weight": module.q_norm.weight,
        "k_norm_weight": module.k_norm.weight,
        "cos_cache": cos,
        "sin_cache": sin,
    }
    output = reference_attention(spec, inputs)["output"]
    torch.testing.assert_close(output.float(), expected, **TOLERANCE)


def test_llama4_rotates_complex_pairs_before_a_norm_without_gain() -> None:
    module = _randomized(
        _modeling("llama4").Llama4TextAttention(_config(_modeling("llama4").Llama4TextConfig), 0)
    )
    assert hasattr(module, "qk_norm")
    cos, sin = _rotary_rows()
    _check_language_model(
        module,
        torch.complex(cos, sin),
        {"rotary": "before_norm", "rotary_interleaved": True, "causal": "upper_left"},
        {"cos_cache": cos, "sin_cache": sin},
    )


def test_llama4_without_rope_scales_each_query_with_its_position() -> None:
    """A layer without RoPE has no norm either: an L2 norm is undone by its length as a gain."""
    config = _config(
        _modeling("llama4").Llama4TextConfig, floor_scale=2, attn_temperature_tuning=True
    )
    config.no_rope_layers = [0, 0]
    module = _randomized(_modeling("llama4").Llama4TextAttention(config, 0))
    hidden = torch.randn(BATCH, SEQLEN, HIDDEN)
    seen, expected = _observed(module, lambda: module(hidden, None, _causal_mask()), QKV)
    query = seen["query"].reshape(BATCH, SEQLEN, HEADS, HEAD_DIM).transpose(1, 2)
    position = torch.arange(SEQLEN).float()
    temperature = torch.log1p(torch.floor((position + 1) / 2)) * config.attn_scale + 1
    inputs = {
        **seen,
        "head_scale": temperature[:, None] * query.norm(dim=-1, keepdim=True),
    }
    spec = _spec(
        qk_norm="l2",
        qk_norm_epsilon=1e-12,
        normalize_key=False,
        causal="upper_left",
    )
    output = reference_attention(spec, inputs)["output"]
    torch.testing.assert_close(output.float(), expected, **TOLERANCE)


def test_hunyuan_normalizes_after_rope_with_a_gain() -> None:
    config = _config(_modeling("hunyuan_v1_dense").HunYuanDenseV1Config)
    module = _randomized(_modeling("hunyuan_v1_dense").HunYuanDenseV1Attention(config, 0))
    cos, sin = _rotary_rows()
    _check_language_model(
        module,
        _full_width(cos, sin),
        {"rotary": "before_norm", "causal": "upper_left"},
        {
            "q_norm_weight": module.query_layernorm.weight,
            "k_norm_weight": module.key_layernorm.weight,
            "cos_cache": cos,
            "sin_cache": sin,
        },
    )


def test_mllama_attends_to_another_sequence_under_a_mask() -> None:
    config = _modeling("mllama").MllamaTextConfig(
        hidden_size=HEADS * HEAD_DIM,
        num_attention_heads=HEADS,
        num_key_value_heads=KV_HEADS,
        rms_norm_eps=EPS,
    )
    config._attn_implementation = "eager"
    module = _randomized(_modeling("mllama").MllamaTextCrossAttention(config, 0))
    hidden = torch.randn(BATCH, SEQLEN, HEADS * HEAD_DIM)
    states = torch.randn(BATCH, 11, HEADS * HEAD_DIM)
    mask = torch.randn(BATCH, 1, SEQLEN, 11)
    seen, expected = _observed(module, lambda: module(hidden, states, attention_mask=mask), QKV)
    inputs = {
        **seen,
        "q_norm_weight": module.q_norm.weight,
        "k_norm_weight": module.k_norm.weight,
        "attn_mask": mask,
    }
    output = reference_attention(_spec(), inputs)["output"]
    torch.testing.assert_close(output.float(), expected, **TOLERANCE)


COSINE: dict[str, Any] = {
    "num_heads": 4,
    "num_kv_heads": 4,
    "scale": 1.0,
    "qk_norm": "l2",
    "qk_norm_epsilon": 1e-12,
}


def _temperature(module: Any) -> torch.Tensor:
    clamped: torch.Tensor = module.logit_scale.clamp(max=math.log(100.0))
    return clamped.exp()


def _relative_position_bias(module: Any, mlp: Any) -> torch.Tensor:
    """`[1,H,N,N]`, from the module's own tables."""
    table = mlp(module.relative_coords_table).view(-1, 4)
    tokens = math.prod(module.window_size)
    bias = table[module.relative_position_index.view(-1)].view(tokens, tokens, 4)
    return 16 * torch.sigmoid(bias.permute(2, 0, 1))[None]


def test_swin_v2_in_transformers_is_cosine_attention_with_a_bias() -> None:
    config = _modeling("swinv2").Swinv2Config()
    module = _randomized(_modeling("swinv2").Swinv2SelfAttention(config, 32, 4, (3, 4)))
    hidden = torch.randn(6, 12, 32)
    with torch.no_grad():
        expected = module(hidden)[0]
        inputs = {
            "query": module.query(hidden),
            "key": module.key(hidden),
            "value": module.value(hidden),
            "head_scale": _temperature(module),
            "attn_mask": _relative_position_bias(module, module.continuous_position_bias_mlp),
        }
    output = reference_attention(_spec(**COSINE), inputs)["output"]
    torch.testing.assert_close(output.float(), expected, **TOLERANCE)


def test_swin_v2_in_timm_masks_each_window_of_an_image_its_own_way() -> None:
    kind = import_timm("timm.models.swin_transformer_v2").WindowAttention
    module = _randomized(kind(32, (3, 4), 4))
    module.proj = nn.Identity()
    windows = torch.zeros(3, 12, 12)
    windows[1, :, 6:], windows[2, 3] = -100.0, -100.0
    hidden = torch.randn(2 * 3, 12, 32)
    with torch.no_grad():
        expected = module(hidden, windows)
        bias = torch.cat((module.q_bias, module.k_bias, module.v_bias))
        query, key, value = (module.qkv(hidden) + bias).chunk(3, -1)
        mask = windows[:, None] + _relative_position_bias(module, module.cpb_mlp)
    inputs = {
        "query": query,
        "key": key,
        "value": value,
        "head_scale": _temperature(module),
        "attn_mask": mask,
    }
    assert mask.shape[0] == 3
    output = reference_attention(_spec(**COSINE), inputs)["output"]
    torch.testing.assert_close(output.float(), expected, **TOLERANCE)


@pytest.mark.parametrize("norm", ["LayerNorm", "RmsNorm"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("fused", [False, True])
def test_vit_attention_in_timm_with_qk_norm(norm: str, causal: bool, fused: bool) -> None:
    norm_layer = getattr(import_timm("timm.layers"), norm)
    module: Any = import_timm("timm.layers.attention").Attention(
        32, num_heads=4, qk_norm=True, norm_layer=norm_layer
    )
    _randomized(module)
    module.proj, module.fused_attn = nn.Identity(), fused
    hidden = torch.randn(3, 11, 32)
    with torch.no_grad():
        expected = module(hidden, is_causal=causal)
        query, key, value = module.qkv(hidden).chunk(3, -1)
    inputs = {
        "query": query,
        "key": key,
        "value": value,
        "q_norm_weight": module.q_norm.weight,
        "k_norm_weight": module.k_norm.weight,
    }
    if norm == "LayerNorm":
        inputs |= {"q_norm_bias": module.q_norm.bias, "k_norm_bias": module.k_norm.bias}
    spec = _spec(
        num_heads=4,
        num_kv_heads=4,
        qk_norm="layer" if norm == "LayerNorm" else "rms",
        qk_norm_epsilon=module.q_norm.eps,
        causal="upper_left" if causal else "none",
    )
    output = reference_attention(spec, inputs)["output"]
    torch.testing.assert_close(output.float(), expected, **TOLERANCE)
