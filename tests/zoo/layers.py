"""Single attention layers of transformers, for models that do not export whole or are large."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import Any, Final

import torch
from torch import nn

from zoo.family import Family, Sample, randomized

_SIZES: Final[dict[str, Any]] = {
    "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "num_hidden_layers": 2, "intermediate_size": 32, "vocab_size": 32, "pad_token_id": 0,
    "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


class _Layer(nn.Module):
    """hidden states, cos, sin and mask in, the attention's result out."""

    def __init__(self, attention: nn.Module, rotates: bool, fixed: dict[str, Any]) -> None:
        super().__init__()
        self.attention = attention
        self.rotates = rotates
        self.fixed = fixed

    def forward(self, hidden: Any, cos: Any, sin: Any, mask: Any) -> Any:
        extra = dict(self.fixed)
        if self.rotates:
            extra["position_embeddings"] = (cos, sin)
        else:
            mask = mask + 0 * cos[0, 0, 0] * sin[0, 0, 0]
        return self.attention(hidden, attention_mask=mask, **extra)[0]


def layer(
    module: str,
    attention: str,
    config: str,
    implementation: str,
    *,
    rotates: bool = True,
    rotary_dim: int = 16,
    options: dict[str, Any] | None = None,
    arguments: dict[str, Any] | None = None,
    layer_idx: int | None = 0,
    extra: dict[str, Any] | None = None,
) -> Sample:
    """One attention of transformers.models.`module` on [batch, tokens, 64]."""
    models = f"transformers.models.{module}"
    configuration = importlib.import_module(f"{models}.configuration_{module}")
    modeling = importlib.import_module(f"{models}.modeling_{module}")
    settings = getattr(configuration, config)(**(_SIZES | (options or {})))
    settings._attn_implementation = implementation
    place = {} if layer_idx is None else {"layer_idx": layer_idx}
    made = getattr(modeling, attention)(settings, **place, **(extra or {}))
    for parameter in made.parameters():
        if not 1e-3 < parameter.float().std(correction=0) < 1e3:
            nn.init.normal_(parameter)  # uninitialized, or constant
    angles = torch.randn(2, 7, rotary_dim // 2).repeat(1, 1, 2)
    mask = torch.zeros(2, 1, 7, 7)
    mask[1, :, :, 5:] = torch.finfo(torch.float32).min
    args = (torch.randn(2, 7, settings.hidden_size), angles.cos(), angles.sin(), mask)
    batch, tokens = torch.export.Dim("batch"), torch.export.Dim("tokens")
    axes = {0: batch, 1: tokens}
    shapes = (axes, axes, axes, {0: batch, 2: tokens, 3: tokens})
    return Sample(randomized(_Layer(made, rotates, arguments or {})), args, {}, shapes)


def _row(
    name: str,
    *names: str,
    fused: int = 1,
    spec: dict[str, Any] | None = None,
    skipped: tuple[str, ...] = (),
    quick: bool = True,
    **options: Any,
) -> Family:
    build = functools.partial(layer, *names)

    def sample(implementation: str) -> Sample:
        return build(implementation, **options)

    return Family(
        name, sample, fused, spec or {}, skipped, implementations=("sdpa", "eager"), quick=quick
    )


class _Merged(nn.Module):
    """Hidden states, angles, mask and encoder states in, the attention's result out."""

    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, hidden: Any, cos: Any, sin: Any, mask: Any, states: Any) -> Any:
        return self.attention(hidden, (cos, sin), mask, states)[0]


def t5gemma2(implementation: str) -> Sample:
    """Self attention and cross attention under one softmax."""
    models = "transformers.models.t5gemma2"
    configuration = importlib.import_module(f"{models}.configuration_t5gemma2")
    modeling = importlib.import_module(f"{models}.modeling_t5gemma2")
    config = configuration.T5Gemma2DecoderConfig(**_SIZES)
    config._attn_implementation = implementation
    module = _Merged(modeling.T5Gemma2MergedAttention(config, layer_idx=0))
    angles = torch.randn(2, 7, 8).repeat(1, 1, 2)
    args = (torch.randn(2, 7, 64), angles.cos(), angles.sin(), torch.zeros(2, 1, 7, 12),
            torch.randn(2, 5, 64))  # fmt: skip
    return Sample(randomized(module), args, {}, None)


FAMILIES: Final = (
    _row("chameleon", "chameleon", "ChameleonAttention", "ChameleonConfig",
         spec={"qk_norm": "layer"}),
    _row("timesfm 2.5", "timesfm2_5", "TimesFm2_5Attention", "TimesFm2_5Config",
         spec={"rotary": "before_norm", "scale": 1.0}),
    _row("esm c", "esmc", "EsmcAttention", "EsmcConfig",
         options={"num_key_value_heads": 4}, spec={"qk_norm": "layer", "norm_axis": "hidden"},
         quick=False),
    _row("internvl vision", "internvl", "InternVLVisionAttention", "InternVLVisionConfig",
         rotates=False, layer_idx=None, options={"use_qk_norm": True},
         spec={"norm_axis": "hidden", "rotary": "none"}),
    _row("qwen3 vl", "qwen3_vl", "Qwen3VLTextAttention", "Qwen3VLTextConfig", quick=False),
    _row("qwen3.5", "qwen3_5", "Qwen3_5Attention", "Qwen3_5TextConfig",
         options={"head_dim": 16}, rotary_dim=4, spec={"rotary_dim": 4}),
    _row("gemma 3n", "gemma3n", "Gemma3nTextAttention", "Gemma3nTextConfig",
         options={"num_kv_shared_layers": 0, "layer_types": ["full_attention"] * 2},
         spec={"scale": 1.0}),
    _row("afmoe", "afmoe", "AfmoeAttention", "AfmoeConfig", quick=False),
    _row("step 3.7", "step3p7", "Step3p7Attention", "Step3p7TextConfig", quick=False),
    _row("exaone moe", "exaone_moe", "ExaoneMoeAttention", "ExaoneMoeConfig", quick=False),
    _row("hy v3", "hy_v3", "HYV3Attention", "HYV3Config", quick=False),
    _row("dory", "dory", "DoryAttention", "DoryConfig", fused=0, skipped=("comes after the rotation",)),
    _row("flex olmo", "flex_olmo", "FlexOlmoAttention", "FlexOlmoConfig",
         spec={"norm_axis": "hidden"}, quick=False),
    _row("olmo hybrid", "olmo_hybrid", "OlmoHybridAttention", "OlmoHybridConfig",
         spec={"norm_axis": "hidden"}, quick=False),
    _row("beam", "beam", "BeamAttention", "BeamConfig", quick=False),
    _row("kolibri", "kolibri1", "Kolibri1Attention", "Kolibri1Config", quick=False),
    _row("mellum", "mellum", "MellumAttention", "MellumConfig", quick=False),
    _row("laguna", "laguna", "LagunaAttention", "LagunaConfig", extra={"num_heads": 4},
         quick=False),
    _row("qwen3 omni", "qwen3_omni_moe", "Qwen3OmniMoeThinkerTextAttention",
         "Qwen3OmniMoeTextConfig", quick=False),
    _row("embedding gemma 2", "embedding_gemma2", "EmbeddingGemma2Attention",
         "EmbeddingGemma2TextConfig", quick=False),
    _row("muse spark", "muse_spark", "MuseSparkTextAttention", "MuseSparkTextConfig",
         options={"qk_scale_factor": 3.0}, spec={"scale": 0.75}, quick=False),
    _row("inkling", "inkling", "InklingAttention", "InklingTextConfig", rotates=False,
         options={"swa_head_dim": 16, "swa_num_attention_heads": 4, "swa_num_key_value_heads": 2},
         spec={"rotary": "none", "scale": 1 / 16}, quick=False),
    _row("molmo 2", "molmo2", "Molmo2Attention", "Molmo2TextConfig",
         options={"qk_norm_type": "qwen3"}, quick=False),
    _row("molmo 2 olmo", "molmo2", "Molmo2Attention", "Molmo2TextConfig",
         options={"qk_norm_type": "olmo"}, spec={"norm_axis": "hidden"}, quick=False),
    _row("pe audio", "pe_audio", "PeAudioEncoderAttention", "PeAudioEncoderConfig",
         spec={"rotary_interleaved": True}, quick=False),
    _row("neomme", "neomme", "NeoMMEAttention", "NeoMMEConfig", quick=False),
    _row("janus vision", "janus", "JanusVisionAttention", "JanusVisionConfig", rotates=False,
         layer_idx=None, options={"use_qk_norm": True, "num_attention_heads": 1},
         spec={"qk_norm": "layer", "rotary": "none"}),
    Family("t5gemma 2", t5gemma2, 0, skipped=("query and key join different streams",),
           implementations=("sdpa", "eager"), quick=False),
    dataclasses.replace(
        _row("flint", "flint", "FlintAttention", "FlintConfig", fused=0, skipped=("attention sink",)),
        implementations=("eager",),
    ),
)  # fmt: skip
