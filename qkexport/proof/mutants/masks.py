"""Mutants that show a query the wrong keys."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from qkexport.proof.mutants.mutant import mutant
from qkexport.proof.mutants.site import Site, rolled
from qkexport.spec import Causal, KvCache


@mutant("drop-mask")
def drop_mask(site: Site) -> bool:
    """The mask is lost; without one, the causal rule, the window or the lengths."""
    if site.input("attn_mask") is not None:
        site.set_input("attn_mask", None)
        return True
    if site.spec.causal is not Causal.NONE:
        site.set_spec(causal=Causal.NONE)
        return True
    if max(site.spec.window_left, site.spec.window_right) >= 0:
        site.set_spec(window_left=-1, window_right=-1)
        return True
    if site.input("kv_lengths") is not None and site.spec.kv_cache is KvCache.CONCAT:
        site.set_input("kv_lengths", None)
        return True
    return False


@mutant("causal-off-by-one")
def causal_off_by_one(site: Site) -> bool:
    """The causal triangle, or the mask, is aligned one key too far."""
    if site.spec.causal is not Causal.NONE:
        aligned = site.spec.causal is Causal.LOWER_RIGHT and site.input("kv_lengths") is not None
        if aligned or site.spec.window_right >= 0:
            return False  # the right window below counts from another diagonal
        site.set_spec(causal=Causal.NONE, window_right=1)
        return True
    mask = site.input("attn_mask")
    if mask is None or mask.shape is None or not len(mask.shape) or mask.shape[-1] == 1:
        return False
    site.set_input("attn_mask", rolled(site, mask, axis=-1))
    return True


@mutant("last-key-lost")
def last_key_lost(site: Site) -> bool:
    """The last key is taken for padding."""
    if site.input("kv_lengths") is not None or site.spec.causal is Causal.LOWER_RIGHT:
        return False
    query, key = site.input("query"), site.input("key")
    row = 1 if site.signature.rank == 3 else 2
    total = site.before("Shape", [key], start=row, end=row + 1)
    past = site.input("past_key")
    if past is not None:
        total = site.before("Add", [total, site.before("Shape", [past], start=2, end=3)])
    one = site.constant(np.array([1], np.int64))
    shorter = site.before("Sub", [total, one])
    batch = site.before("Shape", [query], start=0, end=1)
    lengths = site.before("Expand", [shorter, batch])
    lengths.type, lengths.shape = ir.TensorType(ir.DataType.INT64), ir.Shape([None])
    site.set_input("kv_lengths", lengths)
    return True
