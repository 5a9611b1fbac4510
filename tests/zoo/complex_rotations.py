"""Models that rotate by complex products, which torch.onnx cannot translate as they are."""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import nn

from zoo.family import Family, Sample, randomized
from zoo.language import causal_lm
from zoo.streams import joint


def llama4(implementation: str) -> Sample:
    """The whole model: a norm without gain after a complex rotation."""
    return causal_lm(
        "llama4_text", implementation, num_hidden_layers=1, no_rope_layers=[1], num_local_experts=2,
        intermediate_size_mlp=32,
    )  # fmt: skip


def qwen_image(implementation: str) -> Sample:
    """Two streams with norms and rotations of their own; the angles are complex constants."""
    from diffusers.models.transformers.transformer_qwenimage import QwenImageTransformer2DModel

    model = QwenImageTransformer2DModel(
        patch_size=2, in_channels=8, out_channels=2, num_layers=1, attention_head_dim=12,
        num_attention_heads=2, joint_attention_dim=16, axes_dims_rope=(4, 4, 4),
    )  # fmt: skip
    kwargs = {
        "hidden_states": torch.randn(2, 6, 8),
        "encoder_hidden_states": torch.randn(2, 3, 16),
        "timestep": torch.tensor([0.3, 0.7]),
    }
    return joint(model, kwargs, img_shapes=[[(1, 2, 3)]] * 2)


class _Turned(nn.Module):
    """An attention of diffusers with its angles as real inputs: exp(i * angle)."""

    def __init__(self, attention: nn.Module, **fixed: Any) -> None:
        super().__init__()
        self.attention = attention
        self.fixed = fixed

    def forward(self, x: torch.Tensor, angle: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        turn = torch.polar(torch.ones_like(angle), angle)
        result: torch.Tensor = self._call(x, turn, keep)
        return result

    def _call(self, x: torch.Tensor, turn: torch.Tensor, keep: torch.Tensor) -> Any:
        return self.attention(x, attention_mask=keep, freqs_cis=turn)


class _Lumina(_Turned):
    def _call(self, x: torch.Tensor, turn: torch.Tensor, keep: torch.Tensor) -> Any:
        return self.attention(x, x, attention_mask=keep, image_rotary_emb=turn, **self.fixed)


def _turned(module: _Turned, pairs: int, *, dynamic: bool = True) -> Sample:
    keep = torch.ones(2, 7, dtype=torch.bool)
    keep[1, 5:] = False
    args = (torch.randn(2, 7, 32), torch.randn(2, 7, pairs), keep)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("tokens")}
    return Sample(randomized(module), args, {}, (axes, axes, axes) if dynamic else None)


def lumina2(implementation: str, base: int | None = None) -> Sample:
    """Lumina 2's attention; with `base` its scale grows with the root of log_base(tokens)."""
    from diffusers.models.transformers.transformer_lumina2 import Lumina2TransformerBlock

    block = Lumina2TransformerBlock(32, 4, 2, 8, None, 1e-5)
    fixed = {} if base is None else {"base_sequence_length": base}
    return _turned(_Lumina(block.attn, **fixed), 4, dynamic=base is None)


def z_image(implementation: str) -> Sample:
    from diffusers.models.transformers.transformer_z_image import ZImageTransformerBlock

    block = ZImageTransformerBlock(0, 32, 4, 4, 1e-5, qk_norm=True)
    return _turned(_Turned(block.attention), 4)


_TURNED: Final[dict[str, Any]] = {"rotary_interleaved": True}
_SCALE: Final = math.sqrt(math.log(7, 3)) * 8**-0.5

FAMILIES: Final = (
    Family("llama 4", llama4, 1, _TURNED | {"rotary": "before_norm"},
           implementations=("sdpa", "eager")),
    Family("qwen image", qwen_image, 1, _TURNED),
    Family("lumina 2", lumina2, 1, _TURNED | {"num_kv_heads": 2}),
    Family("lumina 2 by length", lambda how: lumina2(how, 3), 1, _TURNED | {"scale": _SCALE},
           quick=False),
    Family("z-image", z_image, 1, _TURNED),
)  # fmt: skip
