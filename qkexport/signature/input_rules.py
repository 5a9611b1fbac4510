"""Rules about which inputs may be present together, and of which types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from qkexport.signature.refusal import error
from qkexport.signature.types import (
    INPUT_NAMES,
    OUTPUT_NAMES,
    REQUIRED_INPUTS,
    TENSOR_DTYPES,
    DType,
)
from qkexport.spec import KvCache, Rotary

if TYPE_CHECKING:
    from qkexport.signature.attention import AttentionSignature

_TENSOR_INPUTS: Final = (*REQUIRED_INPUTS, "past_key", "past_value")
_INTEGER_INPUTS: Final = ("position_ids", "kv_lengths", "segment_ends")
_PAIRS: Final = (
    ("cos_cache", "sin_cache"),
    ("key_cos_cache", "key_sin_cache"),
    ("past_key", "past_value"),
)


def check(signature: AttentionSignature) -> None:
    """Refuses unknown or missing inputs, lonely halves of pairs, and wrong types."""
    _check_names(signature)
    _check_pairs(signature)
    _check_companions(signature)
    _check_dtypes(signature)


def _check_names(signature: AttentionSignature) -> None:
    for name in signature.inputs:
        if name not in INPUT_NAMES:
            raise error("has no input of that name", repr(name), ", ".join(INPUT_NAMES))
    for name in REQUIRED_INPUTS:
        if not signature.has(name):
            raise error("needs query, key and value", list(signature.inputs))
    if signature.outputs not in (OUTPUT_NAMES[:1], OUTPUT_NAMES):
        raise error("outputs must be output alone or with both presents", signature.outputs)


def _check_pairs(signature: AttentionSignature) -> None:
    for left, right in _PAIRS:
        if signature.has(left) != signature.has(right):
            present = left if signature.has(left) else right
            raise error(f"needs both of {left} and {right}", f"only {present}")


def _check_companions(signature: AttentionSignature) -> None:
    spec, has = signature.spec, signature.has
    rotates = spec.rotary is not Rotary.NONE
    if rotates != has("cos_cache"):
        rule = "needs cos_cache and sin_cache exactly when rotary is not 'none'"
        raise error(rule, f"rotary {str(spec.rotary)!r} and inputs {list(signature.inputs)}")
    for name in ("position_ids", "key_cos_cache"):
        if has(name) and not rotates:
            raise error(f"takes {name} only with rotary", f"rotary {str(spec.rotary)!r}")
    for name in ("k_norm_weight", "k_norm_bias", "key_cos_cache"):
        if has(name) and not spec.normalize_key:
            note = "such keys are used as they are."
            raise error(f"takes {name} only with normalize_key 1", "normalize_key 0", note)
    if spec.kv_cache is KvCache.STATIC and not (has("past_key") and has("kv_lengths")):
        rule = "needs past_key, past_value and kv_lengths with a static cache"
        raise error(rule, list(signature.inputs))


def _check_dtypes(signature: AttentionSignature) -> None:
    tensor = signature.dtype
    if tensor not in TENSOR_DTYPES:
        raise error("query must be float32, float16 or bfloat16", tensor)
    either: frozenset[DType] = frozenset((tensor, DType.FLOAT32))
    accepted: dict[str, frozenset[DType]] = {
        **dict.fromkeys(INPUT_NAMES, either),
        **dict.fromkeys(_TENSOR_INPUTS, frozenset((tensor,))),
        **dict.fromkeys(_INTEGER_INPUTS, frozenset((DType.INT64,))),
        "attn_mask": either | {DType.BOOL},
        "head_scale": frozenset((DType.FLOAT32,)),
    }
    for name, value in signature.inputs.items():
        if value.dtype not in accepted[name]:
            names = " or ".join(sorted(map(str, accepted[name])))
            raise error(f"{name} must be {names}", value.dtype, f"query is {tensor}.")
