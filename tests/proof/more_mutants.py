"""Errors that whoever wrote the comparison did not have in mind, made up by a reviewer."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from qkexport.proof.mutants import Mutant, Site
from qkexport.proof.mutants.heads import _reordered
from qkexport.spec import Causal, Rotary


def _like(value: ir.Value, model: ir.Value) -> ir.Value:
    value.type, value.shape = model.type, model.shape
    return value


def epsilon_x30(site: Site) -> bool:
    """Epsilon is thirty times larger."""
    site.set_spec(qk_norm_epsilon=site.spec.qk_norm_epsilon * 30)
    return bool(site.spec.qk_norm_epsilon)


def gain_plus_one(site: Site) -> bool:
    """The gain is one plus the weight."""
    gain = site.input("q_norm_weight")
    if gain is None:
        return False
    one = site.constant(np.array(1.0), gain.dtype)
    site.set_input("q_norm_weight", _like(site.before("Add", [gain, one]), gain))
    return True


def first_key_head(site: Site) -> bool:
    """All query heads read the first key head."""
    count = site.spec.num_kv_heads
    return count > 1 and _reordered(site, "key", [0] * count, site.signature.dims.head_dim)


def scale_slightly_off(site: Site) -> bool:
    """The scale is one per mille too large."""
    site.set_spec(scale=site.spec.scale * 1.001)
    return True


def last_head_hotter(site: Site) -> bool:
    """The scores of the last head are three per mille too large."""
    if site.input("head_scale") is not None:
        return False
    factor = np.ones(site.spec.num_heads, np.float32)
    factor[-1] = 1.003
    site.set_input("head_scale", site.constant(factor))
    return True


def tail_dropped(site: Site) -> bool:
    """Keys beyond the last whole tile of eight are not seen."""
    taken = site.input("kv_lengths") is not None or site.input("past_key") is not None
    if taken or site.spec.causal is Causal.LOWER_RIGHT:
        return False
    axis = 1 if site.signature.rank == 3 else 2
    tile = site.constant(np.array([8], np.int64))
    total = site.before("Shape", [site.input("key")], start=axis, end=axis + 1)
    whole = site.before("Mul", [site.before("Div", [total, tile]), tile])
    short = site.before("Less", [total, tile])
    seen = site.before("Where", [short, total, whole])
    batch = site.before("Shape", [site.input("query")], start=0, end=1)
    lengths = site.before("Expand", [seen, batch])
    lengths.type, lengths.shape = ir.TensorType(ir.DataType.INT64), ir.Shape([None])
    site.set_input("kv_lengths", lengths)
    return True


def value_rounded(site: Site) -> bool:
    """The value is rounded to bfloat16 on its way in."""
    return _rounded(site, "value", ir.DataType.BFLOAT16)


def query_rounded(site: Site) -> bool:
    """The query is rounded to float16 on its way in."""
    return _rounded(site, "query", ir.DataType.FLOAT16)


def cosines_rounded(site: Site) -> bool:
    """The cosines are kept in float16."""
    return _rounded(site, "cos_cache", ir.DataType.FLOAT16)


def _rounded(site: Site, name: str, dtype: ir.DataType) -> bool:
    value = site.input(name)
    if value is None or value.dtype is not ir.DataType.FLOAT:
        return False
    narrow = site.before("Cast", [value], to=int(dtype))
    wide = site.before("Cast", [narrow], to=int(ir.DataType.FLOAT))
    site.set_input(name, _like(wide, value))
    return True


def first_mask_for_all(site: Site) -> bool:
    """Every batch entry gets the mask of the first."""
    mask = site.input("attn_mask")
    if mask is None or mask.shape is None or len(mask.shape) < 4 or mask.shape[0] == 1:
        return False
    first = site.before("Gather", [mask, site.constant(np.array([0], np.int64))], axis=0)
    first.type, first.shape = mask.type, ir.Shape([1, *mask.shape[1:]])
    site.set_input("attn_mask", first)
    return True


def keys_not_rotated(site: Site) -> bool:
    """RoPE is applied to queries alone."""
    if site.spec.rotary is Rotary.NONE or not site.spec.normalize_key:
        return False
    for name, constant in (("cos_cache", 1.0), ("sin_cache", 0.0)):
        cache = site.input(name)
        if cache is None or cache.shape is None:
            return False
        angles, rank = cache, len(cache.shape)
        if rank == 2:
            angles = site.before("Gather", [cache, site.input("position_ids")], axis=0)
        zero = site.before("Mul", [angles, site.constant(np.array(0.0), cache.dtype)])
        flat = site.before("Add", [zero, site.constant(np.array(constant), cache.dtype)])
        flat.type, flat.shape = cache.type, ir.Shape([None] * max(3, rank))
        site.set_input(f"key_{name}", flat)
    return True


def window_one_wider(site: Site) -> bool:
    """The sliding window shows one key more."""
    if site.spec.window_left < 0:
        return False
    site.set_spec(window_left=site.spec.window_left + 1)
    return True


_ROUNDING = (value_rounded, query_rounded, cosines_rounded)
MORE_MUTANTS = {
    edit.__name__: Mutant(edit.__name__, str(edit.__doc__), edit, rounding=edit in _ROUNDING)
    for edit in (
        epsilon_x30,
        gain_plus_one,
        first_key_head,
        scale_slightly_off,
        last_head_hotter,
        tail_dropped,
        first_mask_for_all,
        keys_not_rotated,
        window_one_wider,
        *_ROUNDING,
    )
}
