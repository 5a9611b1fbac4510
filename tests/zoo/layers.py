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
) -> Sample:
    """One attention of transformers.models.`module` on [batch, tokens, 64]."""
    models = f"transformers.models.{module}"
    configuration = importlib.import_module(f"{models}.configuration_{module}")
    modeling = importlib.import_module(f"{models}.modeling_{module}")
    settings = getattr(configuration, config)(**(_SIZES | (options or {})))
    settings._attn_implementation = implementation
    place = {} if layer_idx is None else {"layer_idx": layer_idx}
    made = getattr(modeling, attention)(settings, **place)
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


def _row(name: str, *names: str, fused: int = 1, spec: dict[str, Any], skipped: tuple[str, ...] = (),
         **options: Any) -> Family:  # fmt: skip
    build = functools.partial(layer, *names)

    def sample(implementation: str) -> Sample:
        return build(implementation, **options)

    return Family(name, sample, fused, spec, skipped, implementations=("sdpa", "eager"))


FAMILIES: Final = (
    _row("chameleon", "chameleon", "ChameleonAttention", "ChameleonConfig",
         spec={"qk_norm": "layer", "rotary": "after_norm"}),
    _row("timesfm 2.5", "timesfm2_5", "TimesFm2_5Attention", "TimesFm2_5Config",
         spec={"qk_norm": "rms", "rotary": "before_norm", "scale": 1.0}),
    _row("esm c", "esmc", "EsmcAttention", "EsmcConfig",
         options={"num_key_value_heads": 4}, spec={"qk_norm": "layer", "norm_axis": "hidden"}),
    _row("internvl vision", "internvl", "InternVLVisionAttention", "InternVLVisionConfig",
         rotates=False, layer_idx=None, options={"use_qk_norm": True},
         spec={"qk_norm": "rms", "norm_axis": "hidden"}),
    _row("qwen3 vl", "qwen3_vl", "Qwen3VLTextAttention", "Qwen3VLTextConfig",
         spec={"qk_norm": "rms", "rotary": "after_norm"}),
    _row("qwen3.5", "qwen3_5", "Qwen3_5Attention", "Qwen3_5TextConfig",
         options={"head_dim": 16}, rotary_dim=4, spec={"qk_norm": "rms", "rotary_dim": 4}),
    _row("gemma 3n", "gemma3n", "Gemma3nTextAttention", "Gemma3nTextConfig",
         options={"num_kv_shared_layers": 0, "layer_types": ["full_attention"] * 2},
         spec={"qk_norm": "rms", "scale": 1.0}),
    _row("afmoe", "afmoe", "AfmoeAttention", "AfmoeConfig", spec={"qk_norm": "rms"}),
    _row("step 3.7", "step3p7", "Step3p7Attention", "Step3p7TextConfig", spec={"qk_norm": "rms"}),
    _row("exaone moe", "exaone_moe", "ExaoneMoeAttention", "ExaoneMoeConfig", spec={"qk_norm": "rms"}),
    _row("hy v3", "hy_v3", "HYV3Attention", "HYV3Config", spec={"qk_norm": "rms"}),
    _row("dory", "dory", "DoryAttention", "DoryConfig", fused=0, spec={}, skipped=("rotation",)),
    dataclasses.replace(
        _row("flint", "flint", "FlintAttention", "FlintConfig", fused=0, spec={}, skipped=("sink",)),
        implementations=("eager",),
    ),
)  # fmt: skip
