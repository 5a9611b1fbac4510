"""A spec together with the inputs and outputs of one node."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from qkexport.signature import input_rules, rotary_rules, shape_rules
from qkexport.signature.types import REQUIRED_INPUTS, Dim, DType, TensorType
from qkexport.spec import AttentionSpec, KvCache, Rotary


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
        input_rules.check(self)
        shape_rules.check(self)
        rotary_rules.check(self)

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

    def head_dim_of(self, name: str) -> Dim:
        """Channels a head of query, key or value."""
        width = self.inputs[name].shape[-1]
        num_heads = self.spec.num_heads if name == "query" else self.spec.num_kv_heads
        return width if self.rank == 4 or width is None else width // num_heads

    @property
    def dims(self) -> Dims:
        """All sizes that the known dimensions determine."""
        query, key, value = (self.inputs[name] for name in REQUIRED_INPUTS)
        row = 1 if self.rank == 3 else 2
        past = self.inputs["past_key"].shape[2] if self.has("past_key") else 0
        head_dim = _first(self.head_dim_of("query"), self.head_dim_of("key"))
        seqlen_kv = _first(key.shape[row], value.shape[row])
        static = self.spec.kv_cache is KvCache.STATIC
        rotary_dim = self.spec.rotary_dim or head_dim
        segments = self.inputs["segment_ends"].shape[0] if self.has("segment_ends") else 1
        return Dims(
            batch_size=_first(query.shape[0], key.shape[0], value.shape[0]),
            seqlen_q=query.shape[row],
            seqlen_kv=seqlen_kv,
            seqlen_past=past,
            seqlen_total=past if static else _sum(past, seqlen_kv),
            head_dim=head_dim,
            head_dim_v=self.head_dim_of("value"),
            rotary_dim=0 if self.spec.rotary is Rotary.NONE else rotary_dim,
            num_segments=segments,
        )


def _first(*dims: Dim) -> Dim:
    return next((dim for dim in dims if dim is not None), None)


def _sum(left: Dim, right: Dim) -> Dim:
    return None if left is None or right is None else left + right
