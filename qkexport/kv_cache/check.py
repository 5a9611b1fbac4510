"""Proof that a model computes the same with a cache, piece by piece, as without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import torch
from torch import Tensor, nn

from qkexport.errors import UnsupportedModelError
from qkexport.kv_cache.contract import CacheLayer
from qkexport.spec import KvCache

_PIECES: Final = (3, 1, 2)
# A lost row or a wrong mask changes logits by their own size; rounding in bfloat16 by percents.
_LIMITS: Final = {torch.float32: 1e-3, torch.float64: 1e-3}
_NARROW_LIMIT: Final = 0.1


def check_against_whole(
    name: str,
    model: nn.Module,
    cached: nn.Module,
    kind: KvCache,
    layers: Sequence[CacheLayer],
) -> None:
    """Runs a few tokens at once without a cache, and in pieces with it.

    Raises:
        UnsupportedModelError: The results differ, or the model cannot run with its cache.
    """
    embeddings: Tensor = model.get_input_embeddings().weight  # type: ignore[operator]
    total = sum(_PIECES)
    ids = torch.randint(len(embeddings), (2, total), generator=torch.Generator().manual_seed(59))
    try:
        with torch.no_grad():
            whole = model(input_ids=ids, use_cache=False).logits
            pieces = _in_pieces(cached, ids, kind, layers, embeddings.dtype)
    except Exception as error:
        text = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        message = f"Model {name} must run with a {kind} cache, got {text}."
        raise UnsupportedModelError(message) from error
    error_norm = float((pieces.double() - whole.double()).norm() / whole.double().norm())
    if not error_norm <= _LIMITS.get(whole.dtype, _NARROW_LIMIT):
        message = (
            f"Model {name} must compute with a {kind} cache what it computes without, got logits "
            f"that differ by {error_norm:.0%}."
        )
        raise UnsupportedModelError(message, hint="convert without --kv-cache.")


def _in_pieces(
    cached: nn.Module,
    ids: Tensor,
    kind: KvCache,
    layers: Sequence[CacheLayer],
    dtype: torch.dtype,
) -> Tensor:
    """Logits of all tokens."""
    batch_size, total = ids.shape
    rows = 0 if kind is KvCache.CONCAT else total
    kept = [
        torch.zeros(batch_size, layer.num_kv_heads, rows, channels, dtype=dtype)
        for layer in layers
        for channels in (layer.head_dim, layer.head_dim_v)
    ]
    logits = []
    end = 0
    for new in _PIECES:
        start, end = end, end + new
        positions = torch.arange(start, end).expand(batch_size, -1)
        if kind is KvCache.CONCAT:
            mask = torch.ones(batch_size, end, dtype=torch.int64)
            result = cached(ids[:, start:end], mask, positions, kept)
        else:
            result = cached(ids[:, start:end], positions, torch.full((batch_size,), end), kept)
        logits.append(result[0])
        kept = list(result[1:])
    return torch.cat(logits, dim=1)
