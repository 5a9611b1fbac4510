"""Diffusion transformers of diffusers: joint streams, whole-width norms, odd rotations."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import nn

from zoo.family import Family, Sample, randomized


class Only(nn.Module):
    """Calls a module with named tensors in a fixed order and returns all its tensors."""

    def __init__(self, module: nn.Module, names: tuple[str, ...], fixed: dict[str, Any]) -> None:
        super().__init__()
        self.module = module
        self.names = names
        self.fixed = fixed

    def forward(self, *args: Any) -> Any:
        named = dict(zip(self.names, args, strict=True))
        result = self.module(**named, **self.fixed, return_dict=False)
        return result if isinstance(result, torch.Tensor) else tuple(result)


def joint(
    model: nn.Module, kwargs: dict[str, Any], shapes: dict[str, Any] | None = None, **fixed: Any
) -> Sample:
    """A diffusers model on named inputs; `shapes` names the dynamic ones."""
    module = randomized(Only(model, tuple(kwargs), fixed))
    axes = None if shapes is None else {"args": tuple(shapes.get(name) for name in kwargs)}
    return Sample(module, tuple(kwargs.values()), {}, axes)


def flux(implementation: str) -> Sample:
    from diffusers.models.transformers.transformer_flux import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=24, pooled_projection_dim=12,
        axes_dims_rope=(4, 4, 8), guidance_embeds=False,
    )  # fmt: skip
    kwargs = {
        "hidden_states": torch.randn(2, 6, 4),
        "encoder_hidden_states": torch.randn(2, 3, 24),
        "pooled_projections": torch.randn(2, 12),
        "timestep": torch.tensor([0.3, 0.7]),
        "img_ids": torch.randint(0, 4, (6, 3)).float(),
        "txt_ids": torch.zeros(3, 3),
    }
    image, text = torch.export.Dim("image"), torch.export.Dim("text")
    shapes = {
        "hidden_states": {1: image}, "encoder_hidden_states": {1: text},
        "img_ids": {0: image}, "txt_ids": {0: text},
    }  # fmt: skip
    return joint(model, kwargs, shapes)


def sd3(implementation: str) -> Sample:
    from diffusers.models.transformers.transformer_sd3 import SD3Transformer2DModel

    model = SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=16,
        num_attention_heads=2, joint_attention_dim=24, caption_projection_dim=32,
        pooled_projection_dim=12, out_channels=4, pos_embed_max_size=8, qk_norm="rms_norm",
        dual_attention_layers=(0,),
    )  # fmt: skip
    kwargs = {
        "hidden_states": torch.randn(2, 4, 8, 8),
        "encoder_hidden_states": torch.randn(2, 3, 24),
        "pooled_projections": torch.randn(2, 12),
        "timestep": torch.tensor([0.3, 0.7]),
    }
    shapes = {"encoder_hidden_states": {1: torch.export.Dim("text")}}
    return joint(model, kwargs, shapes)


def wan(implementation: str) -> Sample:
    from diffusers.models.transformers.transformer_wan import WanTransformer3DModel

    model = WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=12, in_channels=4,
        out_channels=4, text_dim=16, freq_dim=16, ffn_dim=24, num_layers=1, rope_max_seq_len=16,
        cross_attn_norm=True,
    )  # fmt: skip
    kwargs = {
        "hidden_states": torch.randn(2, 4, 2, 4, 4),
        "encoder_hidden_states": torch.randn(2, 5, 16),
        "timestep": torch.tensor([3, 7]),
    }
    shapes = {"encoder_hidden_states": {1: torch.export.Dim("text")}}
    return joint(model, kwargs, shapes)


def cogvideox(implementation: str) -> Sample:
    from diffusers.models.transformers.cogvideox_transformer_3d import CogVideoXTransformer3DModel

    model = CogVideoXTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4,
        time_embed_dim=8, text_embed_dim=16, num_layers=1, sample_width=4, sample_height=4,
        sample_frames=5, patch_size=2, temporal_compression_ratio=4, max_text_seq_length=3,
        use_rotary_positional_embeddings=True,
    )  # fmt: skip
    cos, sin = torch.randn(8, 16), torch.randn(8, 16)
    kwargs = {
        "hidden_states": torch.randn(2, 2, 4, 4, 4),
        "encoder_hidden_states": torch.randn(2, 3, 16),
        "timestep": torch.tensor([3, 7]),
        "image_rotary_emb": (cos, sin),
    }
    return joint(model, kwargs)


def ltx(implementation: str) -> Sample:
    from diffusers.models.transformers.transformer_ltx import LTXVideoTransformer3DModel

    model = LTXVideoTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12,
        cross_attention_dim=24, num_layers=1, caption_channels=16,
    )  # fmt: skip
    kwargs = {
        "hidden_states": torch.randn(2, 8, 4),
        "encoder_hidden_states": torch.randn(2, 5, 16),
        "timestep": torch.tensor([3, 7]),
        "encoder_attention_mask": torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]),
    }
    return joint(model, kwargs, num_frames=2, height=2, width=2)


def hunyuan_video(implementation: str) -> Sample:
    """Rotation on the image tokens only; the text stream has norms of its own."""
    from diffusers.models.transformers.transformer_hunyuan_video import (
        HunyuanVideoTransformer3DModel,
    )

    model = HunyuanVideoTransformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=12, num_layers=1,
        num_single_layers=1, num_refiner_layers=1, mlp_ratio=1.0, text_embed_dim=16,
        pooled_projection_dim=8, rope_axes_dim=(4, 4, 4),
    )  # fmt: skip
    kwargs = {
        "hidden_states": torch.randn(2, 4, 2, 4, 4),
        "timestep": torch.tensor([3, 7]),
        "encoder_hidden_states": torch.randn(2, 5, 16),
        "encoder_attention_mask": torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]),
        "pooled_projections": torch.randn(2, 8),
        "guidance": torch.tensor([100.0, 200.0]),
    }
    return joint(model, kwargs)


def auraflow(implementation: str) -> Sample:
    from diffusers.models.transformers.auraflow_transformer_2d import AuraFlowTransformer2DModel

    model = AuraFlowTransformer2DModel(
        sample_size=8, in_channels=4, num_mmdit_layers=1, num_single_dit_layers=1,
        attention_head_dim=16, num_attention_heads=2, joint_attention_dim=24,
        caption_projection_dim=32, pos_embed_max_size=16,
    )  # fmt: skip
    kwargs = {
        "hidden_states": torch.randn(2, 4, 8, 8),
        "encoder_hidden_states": torch.randn(2, 3, 24),
        "timestep": torch.tensor([0.3, 0.7]),
    }
    return joint(model, kwargs, {"encoder_hidden_states": {1: torch.export.Dim("text")}})


def cogview4(implementation: str) -> Sample:
    from diffusers.models.transformers.transformer_cogview4 import CogView4Transformer2DModel

    model = CogView4Transformer2DModel(
        in_channels=4, out_channels=4, num_layers=1, attention_head_dim=16, num_attention_heads=2,
        text_embed_dim=24, time_embed_dim=8, condition_dim=4, pos_embed_max_size=16, sample_size=8,
        rope_axes_dim=(16, 16),
    )  # fmt: skip
    size = torch.tensor([[32.0, 32.0], [32.0, 32.0]])
    kwargs = {
        "hidden_states": torch.randn(2, 4, 8, 8),
        "encoder_hidden_states": torch.randn(2, 3, 24),
        "timestep": torch.tensor([3, 7]),
        "original_size": size,
        "target_size": size.clone(),  # a tensor given twice is exported as one input
        "crop_coords": torch.zeros(2, 2),
    }
    return joint(model, kwargs, {"encoder_hidden_states": {1: torch.export.Dim("text")}})


def mochi(implementation: str) -> Sample:
    from diffusers.models.transformers.transformer_mochi import MochiTransformer3DModel

    model = MochiTransformer3DModel(
        num_attention_heads=2, attention_head_dim=8, num_layers=1, pooled_projection_dim=12,
        in_channels=4, text_embed_dim=16, time_embed_dim=4, max_sequence_length=5,
    )  # fmt: skip
    kwargs = {
        "hidden_states": torch.randn(1, 4, 2, 4, 4),
        "encoder_hidden_states": torch.randn(1, 5, 16),
        "timestep": torch.tensor([3]),
        "encoder_attention_mask": torch.ones(1, 5, dtype=torch.bool),
    }
    return joint(model, kwargs)


def hunyuan_dit(implementation: str) -> Sample:
    """Cross attention whose queries are rotated and whose keys are not."""
    from diffusers.models.transformers.hunyuan_transformer_2d import HunyuanDiT2DModel

    model = HunyuanDiT2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, patch_size=2, sample_size=8,
        hidden_size=16, num_layers=2, mlp_ratio=1.0, cross_attention_dim=8,
        cross_attention_dim_t5=8, pooled_projection_dim=8, text_len=3, text_len_t5=4,
        use_style_cond_and_image_meta_size=False,
    )  # fmt: skip
    kwargs = {
        "hidden_states": torch.randn(2, 4, 8, 8),
        "timestep": torch.tensor([3.0, 7.0]),
        "encoder_hidden_states": torch.randn(2, 3, 8),
        "text_embedding_mask": torch.ones(2, 3),
        "encoder_hidden_states_t5": torch.randn(2, 4, 8),
        "text_embedding_mask_t5": torch.ones(2, 4),
        "image_rotary_emb": (torch.randn(16, 8), torch.randn(16, 8)),
    }
    return joint(model, kwargs)


FAMILIES: Final = (
    Family("flux", flux, 2, {"rotary_interleaved": True}),
    Family("stable diffusion 3.5", sd3, 3, {"rotary": "none"}),
    Family("wan", wan, 2, {"norm_axis": "hidden", "rotary": None}),
    Family("cogvideox", cogvideox, 1, {"qk_norm": "layer"}),
    Family("ltx", ltx, 2, {"norm_axis": "hidden", "rotary": None}),
    Family("hunyuan video", hunyuan_video, 2),
    Family("auraflow", auraflow, 2, {"qk_norm": "layer", "rotary": "none"}),
    Family("cogview 4", cogview4, 1, {"qk_norm": "layer"}),
    Family("mochi", mochi, 0, skipped=("between norm and scores stands Concat",)),
    Family("hunyuan dit", hunyuan_dit, 4, {"qk_norm": "layer"}),
)
