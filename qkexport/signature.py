"""The tensors of one QKNormAttention node: which are present, their types and shapes.

A signature joins an `AttentionSpec` with the inputs a node really passes. Whatever the contract
refuses about types and shapes is refused here, once, for every consumer: the exporter (dimensions
may be unknown) and the reference (all are numbers).

Symbols: B batch, Sq query length, Skv new keys, P past, T total, H / Hkv heads, D / Dv head dims,
R rotary dim, W cache width, G segments.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Final

from qkexport.errors import InvalidSpecError
from qkexport.spec import OP_TYPE, AttentionSpec, KvCache, NormAxis, Rotary

INPUT_NAMES: Final = (
    "query",
    "key",
    "value",
    "q_norm_weight",
    "k_norm_weight",
    "q_norm_bias",
    "k_norm_bias",
    "cos_cache",
    "sin_cache",
    "position_ids",
    "attn_mask",
    "head_scale",
    "past_key",
    "past_value",
    "kv_lengths",
    "segment_ends",
    "key_cos_cache",
    "key_sin_cache",
)
REQUIRED_INPUTS: Final = INPUT_NAMES[:3]
_TENSOR_INPUTS: Final = (*REQUIRED_INPUTS, "past_key", "past_value")
_INTEGER_INPUTS: Final = ("position_ids", "kv_lengths", "segment_ends")
OUTPUT_NAMES: Final = ("output", "present_key", "present_value")

Dim = int | None  # None: not known before run time


class DType(enum.Enum):
    """Element types that inputs of the operator can have."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    BOOL = "bool"
    INT64 = "int64"

    def __str__(self) -> str:
        return str(self.value)


TENSOR_DTYPES: Final = (DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16)


@dataclasses.dataclass(frozen=True)
class TensorType:
    """Element type and shape of one input; unknown dimensions are None."""

    dtype: DType
    shape: tuple[Dim, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        dims = ",".join("?" if dim is None else str(dim) for dim in self.shape)
        return f"{self.dtype}[{dims}]"


@dataclasses.dataclass(frozen=True)
class Dims:
    """Sizes of one attention; None where not known before run time."""

    batch_size: Dim
    seqlen_q: Dim
    seqlen_kv: Dim
    seqlen_past: Dim
    seqlen_total: Dim
    head_dim: Dim
    head_dim_v: Dim
    rotary_dim: Dim
    num_segments: Dim


@dataclasses.dataclass(frozen=True)
class AttentionSignature:
    """A spec together with the inputs and outputs of one node.

    Attributes:
        spec: The attributes.
        inputs: Type of each input that is present, by name.
        outputs: Names of the outputs that are wanted; `output` first.

    Raises:
        InvalidSpecError: The combination breaks the operator's contract.
    """

    spec: AttentionSpec
    inputs: Mapping[str, TensorType]
    outputs: tuple[str, ...] = ("output",)

    def __post_init__(self) -> None:
        _check_names(self)
        _check_presence(self)
        _check_dtypes(self)
        _check_projections(self)
        _check_norm_parameters(self)
        _check_rotary(self)
        _check_scores(self)
        _check_cache(self)

    def has(self, name: str) -> bool:
        return name in self.inputs

    @property
    def dtype(self) -> DType:
        """T: the type of query, key, value, past and present."""
        return self.inputs["query"].dtype

    @property
    def rank(self) -> int:
        """3 for [B,S,H*D] inputs, 4 for [B,H,S,D]."""
        return self.inputs["query"].rank

    @property
    def dims(self) -> Dims:
        """All sizes that the known dimensions determine."""
        query, key, value = (self.inputs[name] for name in REQUIRED_INPUTS)
        row = 1 if self.rank == 3 else 2
        past = self.inputs["past_key"].shape[2] if self.has("past_key") else 0
        head_dim = _first(
            _head_dim(query, self.spec.num_heads), _head_dim(key, self.spec.num_kv_heads)
        )
        static = self.spec.kv_cache is KvCache.STATIC
        total = past if static else _sum(past, key.shape[row])
        rotary_dim = self.spec.rotary_dim or head_dim
        segments = self.inputs["segment_ends"].shape[0] if self.has("segment_ends") else 1
        return Dims(
            batch_size=_first(query.shape[0], key.shape[0], value.shape[0]),
            seqlen_q=query.shape[row],
            seqlen_kv=_first(key.shape[row], value.shape[row]),
            seqlen_past=past,
            seqlen_total=total,
            head_dim=head_dim,
            head_dim_v=_head_dim(value, self.spec.num_kv_heads),
            rotary_dim=0 if self.spec.rotary is Rotary.NONE else rotary_dim,
            num_segments=segments,
        )


def _error(rule: str, value: object, note: str | None = None) -> InvalidSpecError:
    return InvalidSpecError(f"{OP_TYPE} {rule}, got {value}.", note=note)


def _first(*dims: Dim) -> Dim:
    return next((dim for dim in dims if dim is not None), None)


def _sum(left: Dim, right: Dim) -> Dim:
    return None if left is None or right is None else left + right


def _differ(left: Dim, right: Dim) -> bool:
    return left is not None and right is not None and left != right


def _head_dim(tensor: TensorType, num_heads: int) -> Dim:
    last = tensor.shape[-1]
    return last if tensor.rank == 4 or last is None else last // num_heads


def _fits(shape: tuple[Dim, ...], target: tuple[Dim, ...]) -> bool:
    return len(shape) == len(target) and not any(map(_differ, shape, target))


def _broadcasts(shape: tuple[Dim, ...], target: tuple[Dim, ...]) -> bool:
    if len(shape) > len(target):
        return False
    tail = target[len(target) - len(shape) :]
    return not any(dim != 1 and _differ(dim, goal) for dim, goal in zip(shape, tail, strict=True))


def _check_names(signature: AttentionSignature) -> None:
    for name in signature.inputs:
        if name not in INPUT_NAMES:
            raise _error("has no input of that name", repr(name), ", ".join(INPUT_NAMES))
    for name in REQUIRED_INPUTS:
        if not signature.has(name):
            raise _error("needs query, key and value", list(signature.inputs))
    expected = (OUTPUT_NAMES[:1], OUTPUT_NAMES)
    if signature.outputs not in expected:
        raise _error("outputs are output alone or with both presents", signature.outputs)


def _check_presence(signature: AttentionSignature) -> None:
    spec, has = signature.spec, signature.has
    for left, right in (
        ("cos_cache", "sin_cache"),
        ("key_cos_cache", "key_sin_cache"),
        ("past_key", "past_value"),
    ):
        if has(left) != has(right):
            raise _error(f"needs both of {left} and {right}", left if has(left) else right)
    rotates = spec.rotary is not Rotary.NONE
    if rotates != has("cos_cache"):
        rule = "needs cos_cache and sin_cache exactly when rotary is not 'none'"
        raise _error(rule, f"rotary {str(spec.rotary)!r} and inputs {list(signature.inputs)}")
    for name in ("position_ids", "key_cos_cache"):
        if has(name) and not rotates:
            raise _error(f"takes {name} only with rotary", f"rotary {str(spec.rotary)!r}")
    for name in ("k_norm_weight", "k_norm_bias", "key_cos_cache"):
        if has(name) and not spec.normalize_key:
            raise _error(f"takes no {name} with normalize_key 0", name)
    if spec.kv_cache is KvCache.STATIC and not (has("past_key") and has("kv_lengths")):
        rule = "needs past_key, past_value and kv_lengths with a static cache"
        raise _error(rule, list(signature.inputs))


def _check_dtypes(signature: AttentionSignature) -> None:
    tensor = signature.dtype
    if tensor not in TENSOR_DTYPES:
        raise _error("query must be float32, float16 or bfloat16", tensor)
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
            raise _error(f"{name} must be {names}", value.dtype, f"query is {tensor}.")


def _check_projections(signature: AttentionSignature) -> None:
    spec = signature.spec
    heads = {"query": spec.num_heads, "key": spec.num_kv_heads, "value": spec.num_kv_heads}
    for name, count in heads.items():
        _check_projection(signature, name, count)
    query, key, value = (signature.inputs[name] for name in REQUIRED_INPUTS)
    head_dims = _head_dim(query, spec.num_heads), _head_dim(key, spec.num_kv_heads)
    if _differ(*head_dims):
        raise _error("head_dim of query and key must be equal", head_dims)
    row = 1 if signature.rank == 3 else 2
    if _differ(key.shape[row], value.shape[row]):
        raise _error("key and value must be equally long", f"{key} and {value}")
    for name in ("key", "value"):
        if _differ(query.shape[0], signature.inputs[name].shape[0]):
            raise _error(f"query and {name} must have one batch size", signature.inputs[name])


def _check_projection(signature: AttentionSignature, name: str, num_heads: int) -> None:
    tensor = signature.inputs[name]
    if tensor.rank not in (3, 4) or tensor.rank != signature.rank:
        raise _error("query, key and value must share rank 3 or 4", f"{name} {tensor}")
    if tensor.rank == 4 and _differ(tensor.shape[1], num_heads):
        raise _error(f"{name} must have {num_heads} heads on axis 1", tensor)
    last = tensor.shape[-1]
    if tensor.rank == 3 and last is not None and last % num_heads:
        raise _error(f"{name} width must be a multiple of its {num_heads} heads", tensor)


def _check_norm_parameters(signature: AttentionSignature) -> None:
    spec, dims = signature.spec, signature.dims
    for prefix, num_heads in (("q", spec.num_heads), ("k", spec.num_kv_heads)):
        for name in (f"{prefix}_norm_weight", f"{prefix}_norm_bias"):
            if signature.has(name):
                _check_norm_parameter(signature.inputs[name], name, spec, dims, num_heads)
    if signature.has("segment_ends"):
        if signature.inputs["segment_ends"].rank != 1:
            raise _error("segment_ends must have rank 1", signature.inputs["segment_ends"])
        if _differ(dims.seqlen_q, dims.seqlen_kv):
            raise _error("segment_ends needs Sq == Skv", f"{dims.seqlen_q} and {dims.seqlen_kv}")


def _check_norm_parameter(
    tensor: TensorType, name: str, spec: AttentionSpec, dims: Dims, num_heads: int
) -> None:
    head_dim = dims.head_dim
    if spec.norm_axis is NormAxis.HIDDEN:
        shapes: list[tuple[Dim, ...]] = [(None if head_dim is None else num_heads * head_dim,)]
    else:
        shapes = [(head_dim,), (num_heads, head_dim)]
    if dims.num_segments != 1 or tensor.rank > len(shapes[-1]):
        shapes = [(dims.num_segments, *shape) for shape in shapes]
    if not any(_fits(tensor.shape, shape) for shape in shapes):
        accepted = " or ".join(str(list(shape)) for shape in shapes)
        raise _error(f"{name} must be {accepted}", tensor)


def _check_rotary(signature: AttentionSignature) -> None:
    spec, dims = signature.spec, signature.dims
    if spec.rotary is Rotary.NONE:
        return
    rotary_dim = dims.rotary_dim
    if rotary_dim is not None and rotary_dim % 2:
        raise _error("rotary_dim must be even", rotary_dim)
    if dims.head_dim is not None and spec.rotary_dim > dims.head_dim:
        raise _error("rotary_dim must not exceed head_dim", f"{spec.rotary_dim} > {dims.head_dim}")
    _check_caches(signature, "", dims.seqlen_q, spec.num_heads)
    if signature.has("key_cos_cache"):
        _check_caches(signature, "key_", dims.seqlen_kv, spec.num_kv_heads)
    elif spec.normalize_key and _differ(dims.seqlen_q, dims.seqlen_kv):
        rule = "needs key_cos_cache when query and key lengths differ"
        raise _error(rule, f"{dims.seqlen_q} and {dims.seqlen_kv}")
    if signature.has("position_ids"):
        _check_position_ids(signature, dims)


def _check_caches(signature: AttentionSignature, prefix: str, rows: Dim, num_heads: int) -> None:
    dims = signature.dims
    cos, sin = signature.inputs[f"{prefix}cos_cache"], signature.inputs[f"{prefix}sin_cache"]
    if cos.dtype is not sin.dtype or not _fits(cos.shape, sin.shape):
        raise _error(f"{prefix}cos_cache and {prefix}sin_cache must match", f"{cos} and {sin}")
    if cos.rank not in (2, 3, 4):
        raise _error(f"{prefix}cos_cache must have rank 2 to 4", cos)
    if cos.rank == 2 and not signature.has("position_ids"):
        raise _error(f"{prefix}cos_cache of rank 2 needs position_ids", cos)
    if cos.rank == 2 and prefix and _differ(dims.seqlen_q, rows):
        raise _error("key_cos_cache of rank 2 needs Sq == Skv", f"{dims.seqlen_q} and {rows}")
    target = (dims.batch_size, num_heads, rows)
    leading = (target[0], target[2]) if cos.rank == 3 else target
    if cos.rank > 2 and (not _broadcasts(cos.shape[:-1], leading) or _differ(cos.shape[-2], rows)):
        raise _error(f"{prefix}cos_cache must be [B or 1, H or 1, {rows}, W]", cos)
    width, rotary_dim = cos.shape[-1], dims.rotary_dim
    if width is not None and rotary_dim is not None and width not in (rotary_dim, rotary_dim // 2):
        raise _error(f"{prefix}cos_cache must be R/2 or R = {rotary_dim} wide", cos)


def _check_position_ids(signature: AttentionSignature, dims: Dims) -> None:
    positions = signature.inputs["position_ids"]
    target = (dims.batch_size, dims.seqlen_q)
    if positions.rank != 2 or not _broadcasts(positions.shape, target):
        raise _error("position_ids must be [B or 1, Sq]", positions)
    if _differ(positions.shape[1], dims.seqlen_q):
        raise _error("position_ids must be [B or 1, Sq]", positions)
    ranks = [
        signature.inputs[name].rank
        for name in ("cos_cache", "key_cos_cache")
        if signature.has(name)
    ]
    if 2 not in ranks:
        raise _error("position_ids needs a cos_cache of rank 2", signature.inputs["cos_cache"])


def _check_scores(signature: AttentionSignature) -> None:
    dims, num_heads = signature.dims, signature.spec.num_heads
    if signature.has("attn_mask"):
        mask = signature.inputs["attn_mask"]
        target: tuple[Dim, ...] = (None, num_heads, dims.seqlen_q, dims.seqlen_total)
        if not _broadcasts(mask.shape, target) or not _batch_repeats(mask, dims.batch_size):
            rule = f"attn_mask must broadcast to {_shape_text((dims.batch_size, *target[1:]))}"
            raise _error(rule, mask, "its batch may also divide B.")
    if signature.has("head_scale"):
        scale = signature.inputs["head_scale"]
        target = (dims.batch_size, num_heads, dims.seqlen_q, 1)
        per_head = scale.rank == 1 and (_fits(scale.shape, (num_heads,)) or scale.shape == (1,))
        if not per_head and not (scale.rank != 1 and _broadcasts(scale.shape, target)):
            rule = f"head_scale must be [1], [{num_heads}] or broadcast to {_shape_text(target)}"
            raise _error(rule, scale)


def _batch_repeats(mask: TensorType, batch_size: Dim) -> bool:
    if mask.rank < 4 or batch_size is None:
        return True
    batch = mask.shape[0]
    return batch is None or batch == batch_size or (batch > 0 and batch_size % batch == 0)


def _shape_text(shape: tuple[Dim, ...]) -> str:
    return "[" + ",".join("?" if dim is None else str(dim) for dim in shape) + "]"


def _check_cache(signature: AttentionSignature) -> None:
    dims, num_kv_heads = signature.dims, signature.spec.num_kv_heads
    for name, width in (("past_key", dims.head_dim), ("past_value", dims.head_dim_v)):
        if signature.has(name):
            target = (dims.batch_size, num_kv_heads, dims.seqlen_past, width)
            if not _fits(signature.inputs[name].shape, target):
                rule = f"{name} must be {_shape_text(target)}"
                raise _error(rule, signature.inputs[name])
    if signature.has("kv_lengths"):
        lengths = signature.inputs["kv_lengths"]
        if not _fits(lengths.shape, (dims.batch_size,)):
            raise _error("kv_lengths must be [B]", lengths)
