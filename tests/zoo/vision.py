"""Vision models of timm and transformers."""

from __future__ import annotations

import functools
from typing import Any, Final

import torch
from timm_modules import import_timm
from torch import nn

from zoo.family import Family, Sample, randomized


def _images(model: nn.Module, size: int) -> Sample:
    axes = ({0: torch.export.Dim("batch")},)
    return Sample(randomized(model), (torch.randn(2, 3, size, size),), {}, axes)


def timm_vit(implementation: str, **options: Any) -> Sample:
    """A ViT with qk_norm: LayerNorm by default."""
    vision_transformer = import_timm("timm.models.vision_transformer")
    model = vision_transformer.VisionTransformer(
        img_size=16, patch_size=4, embed_dim=32, depth=2, num_heads=4, num_classes=5, qk_norm=True,
        mlp_ratio=1.0, **options,
    )  # fmt: skip
    for block in model.blocks:
        block.attn.fused_attn = implementation == "sdpa"
    return _images(model, 16)


def mllama_cross(implementation: str) -> Sample:
    """Cross attention of Llama 3.2 Vision: float mask, queries and keys of different lengths."""
    from transformers.models.mllama.configuration_mllama import MllamaTextConfig
    from transformers.models.mllama.modeling_mllama import MllamaTextCrossAttention

    config = MllamaTextConfig(
        hidden_size=48, num_attention_heads=6, num_key_value_heads=2, num_hidden_layers=1,
        vocab_size=32, intermediate_size=32, pad_token_id=0,
    )  # fmt: skip
    config._attn_implementation = implementation
    model = _First(MllamaTextCrossAttention(config, layer_idx=0))
    batch = torch.export.Dim("batch")
    queries, keys = torch.export.Dim("queries"), torch.export.Dim("keys")
    hidden, states = torch.randn(2, 5, 48), torch.randn(2, 9, 48)
    mask = torch.zeros(2, 1, 5, 9)
    mask[0, :, :, 6:] = torch.finfo(mask.dtype).min
    kwargs = {"hidden_states": hidden, "cross_attention_states": states, "attention_mask": mask}
    shapes = {
        "hidden_states": {0: batch, 1: queries},
        "cross_attention_states": {0: batch, 1: keys},
        "attention_mask": {0: batch, 2: queries, 3: keys},
    }
    return Sample(randomized(model), (), kwargs, shapes)


class _First(nn.Module):
    """Only the first output of a module."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, hidden_states: Any, cross_attention_states: Any, attention_mask: Any) -> Any:
        return self.module(
            hidden_states=hidden_states,
            cross_attention_states=cross_attention_states,
            attention_mask=attention_mask,
        )[0]


FAMILIES: Final = (
    Family("timm vit", timm_vit, 2, {"qk_norm": "layer", "rotary": "none", "num_heads": 4},
           implementations=("sdpa", "eager")),
    Family("llama 3.2 vision", mllama_cross, 1, {"qk_norm": "rms", "num_kv_heads": 2},
           implementations=("sdpa", "eager")),
)  # fmt: skip
