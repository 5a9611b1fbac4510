"""A causal LM whose cache grows: earlier keys and values come in, all of them go out.

Every layer keeps all rows, sliding windows too: the mask hides what is out of a window, so one past
length serves all layers and a batch may be padded on either side.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicLayer

from qkexport.kv_cache.contract import CacheLayer
from qkexport.kv_cache.probe import cache_argument


class _GrowingLayer(DynamicLayer):
    """Rows of one layer; their number is a size, also when it is 0."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys, self.values = keys, values
        self.device = keys.device
        self.is_initialized = True

    def get_seq_length(self) -> int:
        assert self.keys is not None
        return self.keys.shape[-2]


class ConcatCacheModel(nn.Module):
    """A causal LM with pasts as inputs and presents as outputs.

    Args:
        model: Of transformers.
        layers: What it keeps.
    """

    def __init__(self, model: nn.Module, layers: tuple[CacheLayer, ...]) -> None:
        super().__init__()
        self.model = model
        self.kept = layers

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        position_ids: Tensor,
        past_key_values: list[Tensor],
    ) -> tuple[Tensor, ...]:
        """Logits [B,S,V], then present key and value of each layer.

        Args:
            input_ids: [B,S].
            attention_mask: [B,P+S], 1 for tokens and 0 for padding.
            position_ids: [B,S].
            past_key_values: Key [B,Hkv,P,D] and value [B,Hkv,P,Dv] of each layer in turn.
        """
        past, new = past_key_values[0].shape[2], input_ids.shape[1]
        torch._check(attention_mask.shape[1] == past + new)  # type: ignore[no-untyped-call]
        cache: Any = Cache(layers=self._filled(past_key_values))
        result: Any = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            use_cache=True,
            **cache_argument(self.model, cache),
        )
        halves = [cache.layers[layer.index] for layer in self.kept]
        return (result.logits, *(x for layer in halves for x in (layer.keys, layer.values)))

    def _filled(self, pasts: list[Tensor]) -> list[Any]:
        layers: list[Any] = [DynamicLayer() for _ in range(self.kept[-1].index + 1)]
        for layer, key, value in zip(self.kept, pasts[::2], pasts[1::2], strict=True):
            layers[layer.index] = _GrowingLayer(key, value)
        return layers
