"""Mutants of the normalization."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from qkexport.proof.mutants.mutant import mutant
from qkexport.proof.mutants.site import Site, rolled
from qkexport.spec import NormAxis, QkNorm, Rotary

_GAINS = ("q_norm_weight", "k_norm_weight")


@mutant("drop-norm")
def drop_norm(site: Site) -> bool:
    """Queries and keys are not normalized."""
    # an epsilon far above every mean square leaves x / sqrt(epsilon), which the scale undoes
    epsilon = 1e6 if site.dtype is ir.DataType.FLOAT else 1e4
    sides = 2 if site.spec.normalize_key else 1
    power = sides if site.spec.qk_norm is QkNorm.L2 else sides / 2
    site.set_spec(qk_norm_epsilon=epsilon, scale=site.spec.scale * epsilon**power)
    for name in ("q_norm_bias", "k_norm_bias"):
        if site.input(name) is not None:
            site.set_input(name, None)
    return True


@mutant("epsilon-x1000")
def epsilon_x1000(site: Site) -> bool:
    """Epsilon is a thousand times larger."""
    if site.spec.qk_norm_epsilon == 0:
        return False
    site.set_spec(qk_norm_epsilon=site.spec.qk_norm_epsilon * 1000)
    return True


@mutant("gain-off-by-one")
def gain_off_by_one(site: Site) -> bool:
    """A gain is read one row or channel too far."""
    for name in _GAINS:
        gain = site.input(name)
        if gain is None or gain.shape is None or not _varies(gain, len(gain.shape)):
            continue
        if site.spec.norm_axis is NormAxis.HIDDEN or len(gain.shape) == 1:
            site.set_input(name, rolled(site, gain, axis=-1))
        else:
            site.set_input(name, rolled(site, gain, axis=0 if gain.shape[0] != 1 else -1))
        return True
    return False


def _varies(gain: ir.Value, rank: int) -> bool:
    """False for a constant gain, which is the same wherever it is read from."""
    array = _numbers(gain)
    return array is None or bool(np.ptp(array, axis=0 if rank > 1 else None).max() > 0)


def _numbers(value: ir.Value) -> Any:
    return None if value.const_value is None else value.const_value.numpy().astype(np.float64)


@mutant("drop-gain")
def drop_gain(site: Site) -> bool:
    """The query's gain is lost."""
    gain = site.input("q_norm_weight")
    if gain is None or (gain.const_value is not None and (_numbers(gain) == 1).all()):
        return False
    site.set_input("q_norm_weight", None)
    return True


@mutant("swap-gains")
def swap_gains(site: Site) -> bool:
    """Query and key have each other's gain."""
    query, key = (site.input(name) for name in _GAINS)
    if query is None or key is None or query is key or query.shape != key.shape:
        return False
    numbers = _numbers(query), _numbers(key)
    if all(array is not None for array in numbers) and np.array_equal(*numbers):
        return False
    if _commutes(site):
        return False
    site.set_input("q_norm_weight", key)
    site.set_input("k_norm_weight", query)
    return True


def _commutes(site: Site) -> bool:
    """True where scores are plain products, in which only the product of both gains counts."""
    biased = site.input("q_norm_bias") is not None or site.input("k_norm_bias") is not None
    return not biased and site.spec.rotary is not Rotary.AFTER_NORM


@mutant("other-norm")
def other_norm(site: Site) -> bool:
    """The mean is subtracted where it should not be, or is not where it should."""
    if site.spec.qk_norm is QkNorm.L2:
        # the same direction, but sqrt(N) longer on each side
        site.set_spec(qk_norm=QkNorm.RMS)
        return True
    kinds = {QkNorm.RMS: QkNorm.LAYER, QkNorm.LAYER: QkNorm.RMS}
    site.set_spec(qk_norm=kinds[site.spec.qk_norm])
    return True


@mutant("drop-bias")
def drop_bias(site: Site) -> bool:
    """The bias of the query's LayerNorm is lost."""
    if site.input("q_norm_bias") is None:
        return False
    site.set_input("q_norm_bias", None)
    return True


@mutant("float16-statistics", rounding=True)
def float16_statistics(site: Site) -> bool:
    """The query's mean square is computed in float16.

    In a float16 or bfloat16 model that is less than the type itself rounds.
    """
    if site.dtype is not ir.DataType.FLOAT:
        return False
    if site.spec.norm_axis is NormAxis.HIDDEN or site.signature.rank == 3:
        heads = _split_query(site)
    else:
        query = site.input("query")
        heads = site.before("Cast", [query], to=int(ir.DataType.FLOAT))
    if heads is None:
        return False
    # the scores are linear in the normalized query: a factor on them is a factor on it
    factor = _float16_factor(site, heads)
    scale = site.input("head_scale")
    if scale is not None:
        if scale.shape is None:
            return False
        if len(scale.shape) == 1:
            axes = site.constant(np.array([1, 2], np.int64))
            scale = site.before("Unsqueeze", [scale, axes])
        factor = site.before("Mul", [factor, scale])
    factor.type, factor.shape = ir.TensorType(ir.DataType.FLOAT), ir.Shape([None] * 4)
    site.set_input("head_scale", factor)
    return True


def _split_query(site: Site) -> ir.Value | None:
    """`[B,H,S,D]` float32 from rank 3; with statistics over all heads `[B,1,S,H*D]`."""
    query, spec = site.input("query"), site.spec
    wide = site.before("Cast", [query], to=int(ir.DataType.FLOAT))
    if site.signature.rank == 4:  # all heads at once
        moved = site.before("Transpose", [wide], perm=[0, 2, 1, 3])
        shape = site.constant(np.array([0, 0, 1, -1], np.int64))
        return site.before("Transpose", [site.before("Reshape", [moved, shape])], perm=[0, 2, 1, 3])
    count = 1 if spec.norm_axis is NormAxis.HIDDEN else spec.num_heads
    shape = site.constant(np.array([0, 0, count, -1], np.int64))
    return site.before("Transpose", [site.before("Reshape", [wide, shape])], perm=[0, 2, 1, 3])


def _float16_factor(site: Site, heads: ir.Value) -> ir.Value:
    """What statistics in float16 multiply the normalized query by, `[B, H or 1, S, 1]` float32."""
    axes = site.constant(np.array([-1], np.int64))
    half, single = int(ir.DataType.FLOAT16), int(ir.DataType.FLOAT)
    if site.spec.qk_norm is QkNorm.LAYER:
        heads = site.before("Sub", [heads, site.before("ReduceMean", [heads, axes], keepdims=1)])
    narrow = site.before("Cast", [heads], to=half)
    mean16 = site.before("ReduceMean", [site.before("Mul", [narrow, narrow]), axes], keepdims=1)
    mean32 = site.before("ReduceMean", [site.before("Mul", [heads, heads]), axes], keepdims=1)
    floor = site.constant(np.array([max(site.spec.qk_norm_epsilon, 1e-20)], np.float32))
    upper = site.before("Add", [mean32, floor])
    lower = site.before("Add", [site.before("Cast", [mean16], to=single), floor])
    return site.before("Sqrt", [site.before("Div", [upper, lower])])
