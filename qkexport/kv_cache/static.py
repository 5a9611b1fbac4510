"""A causal LM whose cache has a fixed size: new keys and values go to rows of their own.

    first_row = kv_lengths - S
    rows first_row .. kv_lengths of the buffers become the new keys and values
    token s of batch entry b stands in row first_row[b] + s and sees rows up to its own

What transformers knows about visibility, windows too, it states as a function of row numbers; here
it is asked with row numbers that differ from one batch entry to the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicLayer
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS

from qkexport.kv_cache.cached_model import CachedModel
from qkexport.kv_cache.scatter_op import tensor_scatter


class _BufferLayer(DynamicLayer):
    """Buffers of one layer and the row that the first new token of each batch entry goes to."""

    def __init__(self, keys: Tensor, values: Tensor, first_row: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.keys, self.values = keys, values
        self.device = keys.device
        self.first_row = first_row
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Writes the new rows; all rows come back."""
        assert self.keys is not None
        assert self.values is not None
        self.keys = tensor_scatter(self.keys, key_states, self.first_row)
        self.values = tensor_scatter(self.values, value_states, self.first_row)
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """All rows, from the first."""
        assert self.keys is not None
        return self.keys.shape[-2], 0

    def get_seq_length(self) -> Any:
        """Rows before the new ones, [B]."""
        return self.first_row


class StaticCacheModel(CachedModel):
    """A causal LM with buffers as inputs and outputs.

    Args:
        model: Of transformers.
        layers: What it keeps.
    """

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        kv_lengths: Tensor,
        past_key_values: list[Tensor],
    ) -> tuple[Tensor, ...]:
        """Logits [B,S,V], then the buffers of each layer with the new rows.

        Args:
            input_ids: [B,S].
            position_ids: [B,S].
            kv_lengths: [B], rows that are valid once the new ones are written; where it is less
                than S, the first tokens are padding and go nowhere.
            past_key_values: Key [B,Hkv,M,D] and value [B,Hkv,M,Dv] of each layer in turn.
        """
        first_row = kv_lengths - input_ids.shape[1]
        with _masks_by_row(self.model):
            return self.run_with_cache(
                past_key_values,
                lambda key, value: _BufferLayer(key, value, first_row),
                input_ids=input_ids,
                position_ids=position_ids,
            )


@contextlib.contextmanager
def _masks_by_row(model: nn.Module) -> Iterator[None]:
    """Lets transformers make its masks with a row offset for each batch entry."""
    config: Any = model.config
    name = config.get_text_config(decoder=True)._attn_implementation
    make = {"sdpa": _bool_mask, "eager": _additive_mask}.get(name)
    if make is None:
        message = f"attention implementation must be sdpa or eager, got {name}"
        raise NotImplementedError(message)
    ALL_MASK_ATTENTION_FUNCTIONS[name] = make
    try:
        yield
    finally:
        del ALL_MASK_ATTENTION_FUNCTIONS[name]


def _bool_mask(
    *,
    q_length: int,
    kv_length: int,
    q_offset: Tensor,
    mask_function: Callable[..., Tensor],
    use_vmap: bool = False,
    **_: Any,
) -> Tensor:
    """True where a token sees a row, [B,1,S,M]."""
    if use_vmap:
        message = "its masks depend on more than row numbers"
        raise NotImplementedError(message)
    batch = torch.arange(q_offset.shape[0])[:, None, None, None]
    head = torch.zeros(1, 1, 1, 1, dtype=torch.int64)
    row = torch.arange(q_length)[None, None, :, None] + q_offset[:, None, None, None]
    column = torch.arange(kv_length)[None, None, None, :]
    seen = mask_function(batch, head, row, column)
    return seen.expand(q_offset.shape[0], 1, q_length, kv_length)


def _additive_mask(*, dtype: torch.dtype, **arguments: Any) -> Tensor:
    """0 where a token sees a row, else the lowest number, [B,1,S,M]."""
    seen = _bool_mask(**arguments)
    return torch.where(seen, torch.zeros((), dtype=dtype), torch.finfo(dtype).min)
