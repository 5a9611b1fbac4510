"""Mutants of the rotary embedding."""

from __future__ import annotations

import onnx_ir as ir

from qkexport.proof.mutants.mutant import mutant
from qkexport.proof.mutants.site import Site, rolled
from qkexport.spec import QkNorm, Rotary


@mutant("rope-order")
def rope_order(site: Site) -> bool:
    """RoPE and norm change places."""
    plain = not any(site.input(name) for name in ("q_norm_weight", "k_norm_weight"))
    if site.spec.rotary is Rotary.NONE or (plain and site.spec.qk_norm is not QkNorm.LAYER):
        return False  # without a gain, rotating does not change the norm
    other = {
        Rotary.AFTER_NORM: Rotary.BEFORE_NORM,
        Rotary.BEFORE_NORM: Rotary.AFTER_NORM,
    }
    site.set_spec(rotary=other[site.spec.rotary])
    return True


@mutant("rope-pairs")
def rope_pairs(site: Site) -> bool:
    """The channels of a pair are taken side by side instead of half a head apart, or vice versa."""
    width = site.spec.rotary_dim or site.signature.dims.rotary_dim
    if site.spec.rotary is Rotary.NONE or width == 2:
        return False
    site.set_spec(rotary_interleaved=not site.spec.rotary_interleaved)
    return True


@mutant("rope-keys-shifted")
def rope_keys_shifted(site: Site) -> bool:
    """Keys are rotated for the position after theirs."""
    if site.spec.rotary is Rotary.NONE or not site.spec.normalize_key:
        return False
    for name in ("cos_cache", "sin_cache"):
        cache = site.input(f"key_{name}") or site.input(name)
        assert cache is not None
        if cache.shape is None:
            return False
        if len(cache.shape) == 2:
            cache = site.before("Gather", [cache, site.input("position_ids")], axis=0)
        shifted = rolled(site, cache, axis=-2)
        source = site.input(name)
        assert source is not None
        shifted.type = source.type
        shifted.shape = ir.Shape([None] * max(3, len(cache.shape or (0, 0, 0))))
        site.set_input(f"key_{name}", shifted)
    return True
