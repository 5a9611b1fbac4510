"""What causal LMs with a cache among their inputs and outputs have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicLayer

from qkexport.kv_cache.contract import CacheLayer
from qkexport.kv_cache.probe import cache_argument


class CachedModel(nn.Module):
    """A causal LM that is given the key and value of each layer and returns what became of them.

    Args:
        model: Of transformers.
        layers: What it keeps.
    """

    def __init__(self, model: nn.Module, layers: tuple[CacheLayer, ...]) -> None:
        super().__init__()
        self.model = model
        self.kept = layers

    def run_with_cache(
        self,
        kept: list[Tensor],
        make_layer: Callable[[Tensor, Tensor], DynamicLayer],
        **inputs: Tensor,
    ) -> tuple[Tensor, ...]:
        """Logits [B,S,V], then key and value of each layer after the new tokens.

        Args:
            kept: Key and value of each layer in turn.
            make_layer: Makes a layer of transformers' cache of a key and a value.
            inputs: All other arguments of the model.
        """
        layers: list[Any] = [DynamicLayer() for _ in range(self.kept[-1].index + 1)]
        for layer, key, value in zip(self.kept, kept[::2], kept[1::2], strict=True):
            layers[layer.index] = make_layer(key, value)
        cache: Any = Cache(layers=layers)
        result: Any = self.model(**inputs, use_cache=True, **cache_argument(self.model, cache))
        halves = [cache.layers[layer.index] for layer in self.kept]
        return (result.logits, *(x for layer in halves for x in (layer.keys, layer.values)))
