"""An attention module on top of the operator, to build models with or to drop into them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from qkexport.errors import InvalidSpecError
from qkexport.signature import INPUT_NAMES
from qkexport.spec import AttentionSpec, KvCache, NormAxis, Rotary
from qkexport.torch_op import op_attributes

Pair = tuple[torch.Tensor, torch.Tensor]


class NormParameters(nn.Module):
    """Gain and bias of one norm; the norm itself runs inside the operator.

    Attributes:
        weight: `[D]`, `[H,D]` or `[H*D]`, or None.
        bias: The same shape, or None.
    """

    weight: nn.Parameter | None
    bias: nn.Parameter | None

    def __init__(self, shape: tuple[int, ...], affine: bool, bias: bool, **place: Any) -> None:
        super().__init__()
        weight = nn.Parameter(torch.ones(shape, **place)) if affine else None
        self.register_parameter("weight", weight)
        self.register_parameter("bias", nn.Parameter(torch.zeros(shape, **place)) if bias else None)


class QKNormAttention(nn.Module):
    """Multi-head attention whose queries and keys are normalized, as one exportable operator.

    Parameters are named as Hugging Face models name theirs (`q_proj.weight`, `q_norm.weight`,
    `o_proj.weight`), so the state dict of such an attention layer loads as it is.

        >>> import torch
        >>> from qkexport.nn import QKNormAttention
        >>> attention = QKNormAttention(64, num_heads=4, num_kv_heads=2, head_dim=16,
        ...                             rotary="after_norm", causal="lower_right")
        >>> for name in attention.state_dict():
        ...     print(name)
        q_proj.weight
        k_proj.weight
        v_proj.weight
        o_proj.weight
        q_norm.weight
        k_norm.weight
        >>> hidden = torch.randn(1, 5, 64)
        >>> whole = attention(hidden)

    Decoding passes the cache of one step to the next:

        >>> output, cache = attention(hidden[:, :4], use_cache=True)
        >>> output, cache = attention(hidden[:, 4:], cache=cache, use_cache=True)
        >>> torch.allclose(output, whole[:, 4:], atol=1e-5)
        True

    Without a hidden size there are no projections: the module takes raw queries, keys and values
    `[B,S,H*D]` and returns what the heads give.

    Args:
        hidden_size: Width of inputs and output; None for no projections.
        num_heads: Query heads H.
        num_kv_heads: Key/value heads Hkv; None for as many as query heads.
        head_dim: Channels a head D; None for hidden_size / H.
        bias: Whether the projections have a bias.
        norm_affine: Whether the norms have a gain.
        norm_bias: Whether they have a bias besides the gain.
        norm_per_head: A gain for each head instead of one for all of them.
        learned_scale: A learned factor on the scores of each head, besides `scale`.
        rotary_base: Base of the RoPE frequencies.
        max_positions: Positions that the RoPE tables cover.
        device: Of all parameters.
        dtype: Of all parameters. The RoPE tables and the learned scale act in float32.
        **attributes: Fields of `AttentionSpec`, such as qk_norm, norm_axis, qk_norm_epsilon,
            norm_rounding, rotary, causal, window_left, softcap; `scale` is D**-0.5 if not given.

    Raises:
        InvalidSpecError: No head dim can be known, or attributes outside the contract.
    """

    head_scale: nn.Parameter | None
    cos_cache: torch.Tensor | None
    sin_cache: torch.Tensor | None

    def __init__(
        self,
        hidden_size: int | None,
        num_heads: int,
        num_kv_heads: int | None = None,
        head_dim: int | None = None,
        *,
        bias: bool = False,
        norm_affine: bool = True,
        norm_bias: bool = False,
        norm_per_head: bool = False,
        learned_scale: bool = False,
        rotary_base: float = 10000.0,
        max_positions: int = 4096,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__()
        head_dim = head_dim or _head_dim(hidden_size, num_heads)
        num_kv_heads = num_kv_heads or num_heads
        heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads}
        self.spec = AttentionSpec(**{"scale": head_dim**-0.5, **attributes, **heads})
        self.head_dim = head_dim
        self.rotary_base = rotary_base
        self.max_positions = max_positions
        place: dict[str, Any] = {"device": device, "dtype": dtype}

        width, kv_width = num_heads * head_dim, num_kv_heads * head_dim
        self.q_proj = _projection(hidden_size, width, bias, place)
        self.k_proj = _projection(hidden_size, kv_width, bias, place)
        self.v_proj = _projection(hidden_size, kv_width, bias, place)
        self.o_proj = _projection(width, hidden_size, bias, place)
        shapes: list[tuple[int, ...]] = [(head_dim,), (head_dim,)]
        if norm_per_head:
            shapes = [(num_heads, head_dim), (num_kv_heads, head_dim)]
        if self.spec.norm_axis is NormAxis.HIDDEN:
            shapes = [(width,), (kv_width,)]
        self.q_norm, self.k_norm = (
            NormParameters(shape, norm_affine, norm_bias, **place) for shape in shapes
        )
        scale = nn.Parameter(torch.ones(num_heads, **place)) if learned_scale else None
        self.register_parameter("head_scale", scale)
        self._build_rotary_tables(device)

    def _build_rotary_tables(self, device: torch.device | str | None) -> None:
        """Cos and sin `[max_positions,R/2]` in float32."""
        cos = sin = None
        if self.spec.rotary is not Rotary.NONE:
            rotary_dim = self.spec.rotary_dim or self.head_dim
            channel = torch.arange(0, rotary_dim, 2, device=device, dtype=torch.float32)
            position = torch.arange(self.max_positions, device=device, dtype=torch.float32)
            angle = position[:, None] * self.rotary_base ** (-channel / rotary_dim)
            cos, sin = angle.cos(), angle.sin()
        self.register_buffer("cos_cache", cos, persistent=False)
        self.register_buffer("sin_cache", sin, persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Moves to another device or type; the tables follow to the device only."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.cos_cache is not None:
            self._build_rotary_tables(self.cos_cache.device)
        return self

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor | None = None,
        value: torch.Tensor | None = None,
        *,
        attn_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        rotary_rows: Pair | None = None,
        cache: Pair | None = None,
        kv_lengths: torch.Tensor | None = None,
        use_cache: bool = False,
    ) -> Any:
        """Attends.

        Args:
            query: Hidden states `[B,Sq,hidden_size]`.
            key: Hidden states of another sequence `[B,Skv,hidden_size]`; None for the query's own.
            value: Likewise; None for the key's.
            attn_mask: bool (true attends) or additive, broadcastable to `[B,H,Sq,T]`.
            position_ids: int64 `[B or 1,Sq]`; None counts on from the cache.
            rotary_rows: Cos and sin of each token `[B or 1,Sq,R or R/2]`, instead of the tables.
            cache: Keys and values of earlier tokens `[B,Hkv,P,D]`, or the static buffers.
            kv_lengths: int64 `[B]`, valid keys including the new ones.
            use_cache: Whether to return the cache for the next step as well.

        Returns:
            The output `[B,Sq,hidden_size]`; with `use_cache` a tuple of it and of the pair of
            present keys and values.
        """
        key = query if key is None else key
        value = key if value is None else value
        past_key, past_value = cache or (None, None)
        if rotary_rows is None and position_ids is None:
            position_ids = self._positions(query, past_key, kv_lengths)
        inputs = {
            "query": self.q_proj(query),
            "key": self.k_proj(key),
            "value": self.v_proj(value),
            **self._norm_inputs(),
            **self._rotary_inputs(rotary_rows, position_ids),
            "attn_mask": attn_mask,
            "head_scale": None if self.head_scale is None else self.head_scale.float(),
            "past_key": past_key,
            "past_value": past_value,
            "kv_lengths": kv_lengths,
        }
        arguments = [inputs.get(name) for name in INPUT_NAMES]
        attributes = op_attributes(self.spec)
        if not use_cache:
            return self.o_proj(torch.ops.qkexport.qk_norm_attention(*arguments, **attributes))
        output, present_key, present_value = torch.ops.qkexport.qk_norm_attention_with_cache(
            *arguments, **attributes
        )
        return self.o_proj(output), (present_key, present_value)

    def _norm_inputs(self) -> dict[str, torch.Tensor | None]:
        inputs: dict[str, torch.Tensor | None] = {
            "q_norm_weight": self.q_norm.weight,
            "q_norm_bias": self.q_norm.bias,
        }
        if self.spec.normalize_key:
            inputs |= {"k_norm_weight": self.k_norm.weight, "k_norm_bias": self.k_norm.bias}
        return inputs

    def _rotary_inputs(
        self, rows: Pair | None, position_ids: torch.Tensor | None
    ) -> dict[str, torch.Tensor | None]:
        if rows is not None:
            return {"cos_cache": rows[0], "sin_cache": rows[1]}
        if self.spec.rotary is Rotary.NONE:
            return {}
        tables = {"cos_cache": self.cos_cache, "sin_cache": self.sin_cache}
        return {**tables, "position_ids": position_ids}

    def _positions(
        self, query: torch.Tensor, past_key: torch.Tensor | None, kv_lengths: torch.Tensor | None
    ) -> torch.Tensor:
        """The places after what the cache holds: `[B or 1,Sq]`."""
        token = torch.arange(query.shape[1], device=query.device)[None]
        if self.spec.kv_cache is KvCache.STATIC and kv_lengths is not None:
            return token + (kv_lengths[:, None] - query.shape[1])
        return token if past_key is None else token + past_key.shape[2]


def _head_dim(hidden_size: int | None, num_heads: int) -> int:
    if hidden_size is None or hidden_size % num_heads:
        rule = "must know head_dim, or a hidden_size that num_heads divides"
        raise InvalidSpecError(f"QKNormAttention {rule}, got {hidden_size} and {num_heads}.")
    return hidden_size // num_heads


def _projection(width_in: int | None, width_out: int | None, bias: bool, place: Any) -> nn.Module:
    if width_in is None or width_out is None:
        return nn.Identity()
    return nn.Linear(width_in, width_out, bias=bias, **place)
