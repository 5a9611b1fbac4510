"""Vision models of timm and transformers."""

from __future__ import annotations

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


def timm_vit_rms(implementation: str) -> Sample:
    """A ViT whose norms are RMS norms."""
    return timm_vit(implementation, norm_layer=import_timm("timm.layers").RmsNorm)


def timm_gemma4(implementation: str) -> Sample:
    """Gemma 4's vision attention: values normalized too, rotation by two coordinates."""
    model = import_timm("timm.models.gemma4_vit").Gemma4Attention(
        32, num_heads=4, head_dim=8, num_kv_heads=2
    )
    model.fused_attn = implementation == "sdpa"
    angles = torch.randn(2, 7, 8)
    batch, tokens = torch.export.Dim("batch"), torch.export.Dim("tokens")
    axes = {0: batch, 1: tokens}
    args = (torch.randn(2, 7, 32), angles.cos(), angles.sin())
    return Sample(randomized(model), args, {}, (axes, axes, axes))


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


def timm_eva(implementation: str) -> Sample:
    """Eva with rotary embedding of all but the prefix tokens and RMS norms."""
    eva = import_timm("timm.models.eva")
    norm = import_timm("timm.layers").RmsNorm
    attention = eva.EvaAttention if hasattr(eva, "EvaAttention") else eva.AttentionRope
    model = attention(
        32, num_heads=4, qkv_fused=False, qk_norm=True, num_prefix_tokens=1, norm_layer=norm,
    )  # fmt: skip
    model.fused_attn = implementation == "sdpa"
    rope = torch.randn(6, 16)
    return Sample(
        randomized(_Rotated(model)),
        (torch.randn(2, 7, 32), rope),
        {},
        ({0: torch.export.Dim("batch")}, None),
    )


class _Rotated(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: torch.Tensor, rope: torch.Tensor) -> torch.Tensor:
        return self.module(x, rope=rope)


def swin(implementation: str) -> Sample:
    """Swin V2 of transformers: cosine attention, windows, half of them shifted."""
    from transformers import Swinv2Config, Swinv2Model

    config = Swinv2Config(
        image_size=16, patch_size=2, embed_dim=16, depths=[2], num_heads=[2], window_size=4,
        mlp_ratio=1.0,
    )  # fmt: skip
    model = _Hidden(Swinv2Model(config, add_pooling_layer=False))
    for name, parameter in model.named_parameters():
        if "logit_scale" in name:
            nn.init.uniform_(parameter, 0.5, 2.0)
    return Sample(model.eval(), (torch.randn(2, 3, 16, 16),), {}, ({0: torch.export.Dim("batch")},))


class _Hidden(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.module(pixels)[0]


def timm_swin(
    implementation: str, name: str = "swin_transformer_v2", kind: str = "SwinTransformerV2"
) -> Sample:
    model = getattr(import_timm(f"timm.models.{name}"), kind)(
        img_size=16, patch_size=2, embed_dim=16, depths=(2,), num_heads=(2,), window_size=4,
        num_classes=5, mlp_ratio=1.0,
    )  # fmt: skip
    for label, parameter in model.named_parameters():
        if "logit_scale" in label:
            nn.init.uniform_(parameter, 0.5, 2.0)
    return Sample(model.eval(), (torch.randn(2, 3, 16, 16),), {}, ({0: torch.export.Dim("batch")},))


def timm_swin_cr(implementation: str) -> Sample:
    return timm_swin(implementation, "swin_transformer_v2_cr", "SwinTransformerV2Cr")


def swin2sr(implementation: str) -> Sample:
    """Super-resolution by Swin V2's blocks."""
    from transformers import Swin2SRConfig, Swin2SRModel

    config = Swin2SRConfig(
        image_size=16, patch_size=1, embed_dim=16, depths=[2], num_heads=[2], window_size=4,
        mlp_ratio=1.0,
    )  # fmt: skip
    model = _Hidden(Swin2SRModel(config))
    for name, parameter in model.named_parameters():
        if "logit_scale" in name:
            nn.init.uniform_(parameter, 0.5, 2.0)
    return Sample(model.eval(), (torch.randn(2, 3, 16, 16),), {}, None)


def xcit(implementation: str) -> Sample:
    """Attention over channels: what is normalized are tokens."""
    attention = import_timm("timm.models.xcit").XCA(32, num_heads=4)
    nn.init.uniform_(attention.temperature, 0.5, 2.0)
    return Sample(attention.eval(), (torch.randn(2, 9, 32),), {}, ({0: torch.export.Dim("batch")},))


def edgenext(implementation: str) -> Sample:
    attention = import_timm("timm.models.edgenext").CrossCovarianceAttn(32, num_heads=4)
    nn.init.uniform_(attention.temperature, 0.5, 2.0)
    return Sample(attention.eval(), (torch.randn(2, 9, 32),), {}, ({0: torch.export.Dim("batch")},))


_BOTH: Final = ("sdpa", "eager")
FAMILIES: Final = (
    Family("timm vit", timm_vit, 2, {"qk_norm": "layer", "rotary": "none", "num_heads": 4},
           implementations=_BOTH),
    Family("timm vit rms", timm_vit_rms, 2, {"rotary": "none"},
           implementations=_BOTH, quick=False),
    Family("timm gemma 4 vit", timm_gemma4, 0, skipped=("between norm and scores stands Concat",),
           implementations=_BOTH, quick=False),
    Family("llama 3.2 vision", mllama_cross, 1, {"rotary": "none", "num_kv_heads": 2},
           implementations=_BOTH),
    Family("timm eva", timm_eva, 1, {}, implementations=_BOTH),
    Family("swin v2", swin, 2, {"qk_norm": "l2", "rotary": "none", "scale": 1.0}),
    Family("timm swin v2", timm_swin, 2, {"qk_norm": "l2", "rotary": "none", "scale": 1.0}),
    Family("timm swin v2 cr", timm_swin_cr, 2, {"qk_norm": "l2", "rotary": "none", "scale": 1.0},
           quick=False),
    Family("swin 2 sr", swin2sr, 2, {"qk_norm": "l2", "rotary": "none", "scale": 1.0}, quick=False),
    Family("xcit", xcit, 0, skipped=("it attends over channels",)),
    Family("edgenext", edgenext, 0, skipped=("it attends over channels",), quick=False),
)  # fmt: skip
