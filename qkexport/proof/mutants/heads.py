"""Mutants that confuse heads, groups and batch entries."""

from __future__ import annotations

import numpy as np

from qkexport.proof.mutants.mutant import mutant
from qkexport.proof.mutants.site import Site, head_channels, picked, rolled
from qkexport.signature import Dim
from qkexport.spec import NormAxis


def _reordered(site: Site, name: str, heads: list[int], width: Dim) -> bool:
    """Replaces query, key or value by the same with its heads in another order."""
    value = site.input(name)
    assert value is not None
    if site.signature.rank == 4:
        site.set_input(name, picked(site, value, heads, axis=1))
        return True
    if width is None:
        return False
    site.set_input(name, picked(site, value, head_channels(heads, width), axis=-1))
    return True


@mutant("swap-heads")
def swap_heads(site: Site) -> bool:
    """Two heads of the output change places."""
    count, width = site.spec.num_heads, site.signature.dims.head_dim_v
    if count < 2:
        return False
    order = [1, 0, *range(2, count)]
    if site.signature.rank == 4:
        site.after("Gather", site.constant(np.array(order, np.int64)), axis=1)
        return True
    if width is None:
        return False
    channels = np.array(head_channels(order, width), np.int64)
    site.after("Gather", site.constant(channels), axis=-1)
    return True


@mutant("gqa-tiled")
def gqa_tiled(site: Site) -> bool:
    """Query head h reads key head h mod Hkv instead of h // (H / Hkv)."""
    spec, dims = site.spec, site.signature.dims
    cached = site.input("past_key") is not None or len(site.node.outputs) > 1
    if spec.group_size == 1 or spec.num_kv_heads == 1 or cached:
        return False
    order = [head % spec.num_kv_heads for head in range(spec.num_heads)]
    for name, width in (("key", dims.head_dim), ("value", dims.head_dim_v)):
        if not _reordered(site, name, order, width):
            return False
    for name in ("k_norm_weight", "k_norm_bias"):
        _spread_parameter(site, name, order)
    for name in ("key_cos_cache", "key_sin_cache"):
        cache = site.input(name)
        if cache is not None and cache.shape is not None and len(cache.shape) == 4:
            return False
    site.set_spec(num_kv_heads=spec.num_heads)
    return True


def _spread_parameter(site: Site, name: str, order: list[int]) -> None:
    parameter, head_dim = site.input(name), site.signature.dims.head_dim
    if parameter is None or parameter.shape is None or head_dim is None:
        return
    if site.spec.norm_axis is NormAxis.HIDDEN:
        channels = head_channels(order, head_dim)
        site.set_input(name, picked(site, parameter, channels, axis=-1))
    elif len(parameter.shape) >= 2 and parameter.shape[-2] == site.spec.num_kv_heads:
        site.set_input(name, picked(site, parameter, order, axis=-2))


@mutant("value-heads-rolled")
def value_heads_rolled(site: Site) -> bool:
    """Each key head is paired with its neighbour's values."""
    count = site.spec.num_kv_heads
    if count < 2:
        return False
    order = [*range(1, count), 0]
    return _reordered(site, "value", order, site.signature.dims.head_dim_v)


@mutant("head-silenced")
def head_silenced(site: Site) -> bool:
    """The last head's output is zero."""
    count, width = site.spec.num_heads, site.signature.dims.head_dim_v
    keep = np.ones((count, 1, 1) if site.signature.rank == 4 else count, np.float32)
    keep[-1] = 0
    if site.signature.rank == 3:
        if width is None:
            return False
        keep = keep.repeat(width)
    site.after("Mul", site.constant(keep, site.dtype))
    return True


@mutant("batch-mixed")
def batch_mixed(site: Site) -> bool:
    """Each batch entry attends to the keys of another."""
    key = site.input("key")
    assert key is not None
    if site.signature.dims.batch_size == 1:
        return False
    site.set_input("key", rolled(site, key, axis=0))
    return True
