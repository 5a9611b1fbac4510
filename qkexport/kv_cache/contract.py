"""What the inputs and outputs of a model with a cache are called, as optimum calls them.

Both kinds take input_ids [B,S] and position_ids [B,S] and give logits [B,S,V].

concat: attention_mask [B,P+S], past_key_values.N.key [B,Hkv,P,D] and .value [B,Hkv,P,Dv] come in,
present.N.key [B,Hkv,P+S,D] and .value [B,Hkv,P+S,Dv] go out.

static: kv_lengths [B], past_key_values.N.key [B,Hkv,M,D] and .value [B,Hkv,M,Dv] come in,
present.N.key and .value of the same shapes go out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from qkexport.spec import KvCache
from qkexport.tensor_names import TensorNames

BATCH: Final = "batch_size"
NEW: Final = "sequence_length"
PAST: Final = "past_sequence_length"
BUFFER: Final = "max_sequence_length"

LENGTHS: Final = "kv_lengths"
_OWN_INPUTS: Final = {
    KvCache.CONCAT: ("input_ids", "attention_mask", "position_ids"),
    KvCache.STATIC: ("input_ids", "position_ids", LENGTHS),
}
_PAST_PREFIX: Final = "past_key_values"
_PRESENT_PREFIX: Final = "present"


@dataclasses.dataclass(frozen=True)
class CacheLayer:
    """Keys and values of one layer, [B,num_heads,rows,channels].

    Attributes:
        index: Of the layer in the model; layers that keep nothing are left out.
        num_kv_heads: Hkv.
        head_dim: D, channels of a key.
        head_dim_v: Dv, channels of a value.
    """

    index: int
    num_kv_heads: int
    head_dim: int
    head_dim_v: int


def tensor_names(kind: KvCache, layers: Sequence[CacheLayer]) -> TensorNames:
    """Names of all inputs and outputs; layers are counted among those that keep something."""
    pasts = _pairs(_PAST_PREFIX, len(layers))
    presents = _pairs(_PRESENT_PREFIX, len(layers))
    return TensorNames((*_OWN_INPUTS[kind], *pasts), ("logits", *presents))


def kind_of_inputs(names: Sequence[str]) -> KvCache | None:
    """Which contract a model with these inputs keeps; None: it has no cache."""
    if not any(name.startswith(f"{_PAST_PREFIX}.") for name in names):
        return None
    return KvCache.STATIC if LENGTHS in names else KvCache.CONCAT


def _pairs(prefix: str, count: int) -> list[str]:
    return [f"{prefix}.{index}.{half}" for index in range(count) for half in ("key", "value")]
