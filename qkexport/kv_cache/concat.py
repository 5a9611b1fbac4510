"""A causal LM whose cache grows: earlier keys and values come in, all of them go out.

Every layer keeps all rows, sliding windows too: the mask hides what is out of a window, so one past
length serves all layers and a batch may be padded on either side.
"""

from __future__ import annotations

import torch
from torch import Tensor
from transformers.cache_utils import DynamicLayer

from qkexport.kv_cache.cached_model import CachedModel


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


class ConcatCacheModel(CachedModel):
    """A causal LM with pasts as inputs and presents as outputs.

    Args:
        model: Of transformers.
        layers: What it keeps.
    """

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
        return self.run_with_cache(
            past_key_values,
            _GrowingLayer,
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
        )
