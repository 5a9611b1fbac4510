"""Causal language models of transformers."""

from __future__ import annotations

import functools
from typing import Any, Final

import torch

from zoo.family import Family, Sample, randomized

_SIZES: Final[dict[str, Any]] = {
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 64,
    "use_cache": False,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def causal_lm(
    model_type: str,
    implementation: str,
    *,
    dtype: torch.dtype = torch.float32,
    masked: bool = True,
    dynamic: bool = True,
    **options: Any,
) -> Sample:
    """A tiny model of one of transformers' types."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(model_type, **(_SIZES | options))
    config._attn_implementation = implementation
    config._experts_implementation = "batched_mm"
    model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation)
    model.config.use_cache = False
    ids = torch.randint(3, 64, (2, 7))
    kwargs = {"input_ids": ids}
    if masked:
        kwargs["attention_mask"] = torch.ones_like(ids)
    shapes = None
    if dynamic:
        axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("seqlen")}
        shapes = dict.fromkeys(kwargs, axes)
    return Sample(randomized(model).to(dtype), (), kwargs, shapes)


def _lm(
    name: str,
    model_type: str,
    fused: int = 2,
    spec: dict[str, Any] | None = None,
    *,
    skipped: tuple[str, ...] = (),
    quick: bool = False,
    **options: Any,
) -> Family:
    return Family(
        name,
        functools.partial(causal_lm, model_type, **options),
        fused,
        spec or {},
        skipped,
        unmasked=bool(fused) and not options.get("masked", True),
        implementations=("sdpa", "eager"),
        quick=quick,
    )


_EXPERTS: Final = {
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
}  # fmt: skip
_YARNLESS: Final = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}

FAMILIES: Final = (
    _lm("qwen3", "qwen3", quick=True),
    _lm(
        "qwen3 float16",
        "qwen3",
        dtype=torch.float16,
        spec={"norm_rounding": "before_weight"},
        quick=True,
    ),
    _lm("qwen3 without mask", "qwen3", spec={"causal": "upper_left"}, masked=False),
    _lm("qwen3 static", "qwen3", spec={"causal": "upper_left"}, masked=False, dynamic=False),
    _lm("qwen3 moe", "qwen3_moe", **_EXPERTS),
    _lm("gemma 3", "gemma3_text", spec={"scale": 24**-0.5}, query_pre_attn_scalar=24, quick=True),
    _lm("gemma 4", "gemma4_text", quick=True),
    _lm("olmo 2", "olmo2", spec={"norm_axis": "hidden"}, quick=True),
    _lm("olmo 3", "olmo3", spec={"norm_axis": "hidden"}),
    _lm("olmoe", "olmoe", spec={"norm_axis": "hidden"}, hidden_size=64, **_EXPERTS),
    _lm(
        "olmoe clipped",
        "olmoe",
        0,
        skipped=("between norm and scores stands Clip",) * 2,
        clip_qkv=2.0,
        hidden_size=64,
        quick=True,
        **_EXPERTS,
    ),
    _lm(
        "minimax m2",
        "minimax_m2",
        spec={"norm_axis": "hidden", "rotary_dim": 8},
        rotary_dim=8,
        **_EXPERTS,
    ),
    _lm(
        "cohere",
        "cohere",
        spec={"qk_norm": "layer", "rotary_interleaved": True},
        use_qk_norm=True,
        quick=True,
    ),
    _lm("hunyuan dense", "hunyuan_v1_dense", spec={"rotary": "before_norm"}),
    _lm("nanochat", "nanochat", spec={"rotary": "before_norm"}, quick=True),
    _lm(
        "stablelm",
        "stablelm",
        spec={"qk_norm": "layer"},
        qk_layernorm=True,
        hidden_size=64,
        quick=True,
    ),
    _lm(
        "persimmon",
        "persimmon",
        spec={"qk_norm": "layer"},
        qk_layernorm=True,
        hidden_size=64,
        quick=True,
    ),
    _lm("phi", "phi", spec={"qk_norm": "layer"}, qk_layernorm=True, hidden_size=64),
    _lm(
        "qwen3 next",
        "qwen3_next",
        fused=1,
        spec={"causal": "upper_left"},
        layer_types=["linear_attention", "full_attention"],
        masked=False,
        dynamic=False,
        **_EXPERTS,
    ),
    _lm("glm 4.5", "glm4_moe", use_qk_norm=True, first_k_dense_replace=2, **_EXPERTS),
    _lm(
        "exaone 4",
        "exaone4",
        spec={"rotary": None},
        sliding_window=4,
        layer_types=["sliding_attention", "full_attention"],
    ),
    _lm("apertus", "apertus"),
    _lm("lfm2", "lfm2", layer_types=["full_attention", "full_attention"]),
    _lm("dots1", "dots1", first_k_dense_replace=2, **_EXPERTS),
    _lm(
        "deepseek v3.2",
        "deepseek_v32",
        0,
        {"rotary": None},
        masked=False,
        dynamic=False,
        quick=False,
        first_k_dense_replace=2,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_nope_head_dim=8,
        qk_rope_head_dim=8,
        v_head_dim=8,
        index_n_heads=2,
        index_head_dim=16,
        index_topk=7,
        num_key_value_heads=4,
        **_EXPERTS,
    ),
)
