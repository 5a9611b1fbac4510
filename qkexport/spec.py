"""The attributes of `qkexport::QKNormAttention`, version 1, as one immutable value.

`AttentionSpec` holds what a node says about its attention whatever tensors it is given. It is
validated when it is made, so whoever holds one need not check it again. The tensors are described
by `qkexport.signature`.
"""

from __future__ import annotations

import dataclasses
import difflib
import enum
import math
import struct
from collections.abc import Mapping
from typing import Final, TypeVar

from qkexport.errors import InvalidSpecError

OP_DOMAIN: Final = "qkexport"
OP_TYPE: Final = "QKNormAttention"
OP_VERSION: Final = 1

AttributeValue = int | float | str


class QkNorm(enum.StrEnum):
    """Kind of normalization applied to each query and key vector."""

    RMS = "rms"
    LAYER = "layer"
    L2 = "l2"


class NormAxis(enum.StrEnum):
    """`head`: over the D channels of one head. `hidden`: over all heads at once."""

    HEAD = "head"
    HIDDEN = "hidden"


class NormRounding(enum.StrEnum):
    """Where the norm rounds to the tensor type: once at the end, or also before the gain."""

    AFTER_WEIGHT = "after_weight"
    BEFORE_WEIGHT = "before_weight"


class Rotary(enum.StrEnum):
    """Whether RoPE runs, and on which side of the norm."""

    NONE = "none"
    AFTER_NORM = "after_norm"
    BEFORE_NORM = "before_norm"


class Causal(enum.StrEnum):
    """Alignment of the causal triangle when the key sequence is longer than the query's."""

    NONE = "none"
    UPPER_LEFT = "upper_left"
    LOWER_RIGHT = "lower_right"


class KvCache(enum.StrEnum):
    """`concat`: present = past + new. `static`: new rows are written into the past buffers."""

    CONCAT = "concat"
    STATIC = "static"


# Attributes that say how a node is spelled rather than what it computes.
SPELLING_ATTRIBUTES: Final[Mapping[str, str]] = {
    "input_roles": "",
    "output_roles": "",
    "plugin_version": str(OP_VERSION),
    "plugin_namespace": "",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttentionSpec:
    """What one QK-norm attention computes.

    Floats are stored as the nearest float32, since that is what an ONNX attribute keeps.

    Attributes:
        num_heads: Query heads H.
        num_kv_heads: Key and value heads Hkv; H is a multiple of it.
        qk_norm: Kind of norm.
        norm_axis: Over one head, or over all heads at once.
        qk_norm_epsilon: Added to the mean square or variance; for `l2` the floor of the norm.
        norm_rounding: Where the norm rounds to the tensor type.
        normalize_key: False when the keys arrive already normalized and rotated.
        rotary: Whether RoPE runs before or after the norm, or not at all.
        rotary_dim: Leading channels that RoPE turns; 0 means all D.
        rotary_interleaved: Pairs are (2i, 2i+1) instead of (i, i+R/2).
        causal: Alignment of the causal mask.
        window_left: Keys visible before the query's own position; -1 is unlimited.
        window_right: Keys visible after it; -1 is unlimited.
        scale: Multiplies q . k; never implied.
        softcap: softcap * tanh(score / softcap); 0 is off.
        kv_cache: How past keys and values become present ones.

    Raises:
        InvalidSpecError: A value outside the contract.
    """

    num_heads: int
    num_kv_heads: int
    scale: float
    qk_norm: QkNorm = QkNorm.RMS
    norm_axis: NormAxis = NormAxis.HEAD
    qk_norm_epsilon: float = 1e-6
    norm_rounding: NormRounding = NormRounding.AFTER_WEIGHT
    normalize_key: bool = True
    rotary: Rotary = Rotary.NONE
    rotary_dim: int = 0
    rotary_interleaved: bool = False
    causal: Causal = Causal.NONE
    window_left: int = -1
    window_right: int = -1
    softcap: float = 0.0
    kv_cache: KvCache = KvCache.CONCAT

    def __post_init__(self) -> None:
        for field, kind in _ENUM_FIELDS.items():
            object.__setattr__(self, field, _as_enum(field, getattr(self, field), kind))
        for field in _INT_FIELDS:
            object.__setattr__(self, field, _as_int(field, getattr(self, field)))
        for field in _BOOL_FIELDS:
            object.__setattr__(self, field, _as_bool(field, getattr(self, field)))
        for field in _FLOAT_FIELDS:
            object.__setattr__(self, field, _as_float32(field, getattr(self, field)))
        self._check_heads()
        self._check_ranges()

    @property
    def group_size(self) -> int:
        """Query heads that share one key/value head."""
        return self.num_heads // self.num_kv_heads

    def to_attributes(
        self, *, input_roles: str = "", output_roles: str = ""
    ) -> dict[str, AttributeValue]:
        """All attributes of the ONNX node, every one explicit.

        Args:
            input_roles: Comma-separated input names for the packed spelling; "" is positional.
            output_roles: Likewise for the outputs.
        """
        attributes: dict[str, AttributeValue] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, enum.Enum):
                value = str(value)
            attributes[field.name] = int(value) if isinstance(value, bool) else value
        return {
            **attributes,
            **SPELLING_ATTRIBUTES,
            "input_roles": input_roles,
            "output_roles": output_roles,
        }

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, AttributeValue]) -> AttentionSpec:
        """Reads the spec from a node's attributes.

        Args:
            attributes: Name to value; the four spelling attributes may be absent.

        Raises:
            InvalidSpecError: An attribute is unknown, missing, of the wrong type or out of range.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for name in attributes:
            if name not in known and name not in SPELLING_ATTRIBUTES:
                raise _unknown_attribute(name, [*known, *SPELLING_ATTRIBUTES])
        for name, expected in SPELLING_ATTRIBUTES.items():
            if name.startswith("plugin_") and attributes.get(name, expected) != expected:
                message = (
                    f"{OP_TYPE} attribute {name} must be {expected!r}, got {attributes[name]!r}."
                )
                raise InvalidSpecError(message, note=f"this is operator version {OP_VERSION}.")
        missing = [name for name in known if name not in attributes]
        if missing:
            message = f"{OP_TYPE} needs every attribute written out, got none for {missing}."
            raise InvalidSpecError(message, note="no attribute has an implied default.")
        return cls(**{name: attributes[name] for name in known})  # type: ignore[arg-type]

    def _check_heads(self) -> None:
        for field in ("num_heads", "num_kv_heads"):
            if getattr(self, field) < 1:
                raise _invalid(field, "must be at least 1", getattr(self, field))
        if self.num_heads % self.num_kv_heads:
            message = (
                f"{OP_TYPE} num_heads must be a multiple of num_kv_heads, "
                f"got {self.num_heads} and {self.num_kv_heads}."
            )
            raise InvalidSpecError(
                message, note="query head h reads key/value head h // (num_heads / num_kv_heads)."
            )

    def _check_ranges(self) -> None:
        if self.rotary_dim < 0 or self.rotary_dim % 2:
            raise _invalid("rotary_dim", "must be even and not negative", self.rotary_dim)
        for field in ("window_left", "window_right"):
            if getattr(self, field) < -1:
                raise _invalid(field, "must be -1 (unlimited) or more", getattr(self, field))
        for field in ("qk_norm_epsilon", "softcap"):
            if getattr(self, field) < 0:
                raise _invalid(field, "must not be negative", getattr(self, field))


_ENUM_FIELDS: Final[Mapping[str, type[enum.StrEnum]]] = {
    "qk_norm": QkNorm,
    "norm_axis": NormAxis,
    "norm_rounding": NormRounding,
    "rotary": Rotary,
    "causal": Causal,
    "kv_cache": KvCache,
}
_INT_FIELDS: Final = ("num_heads", "num_kv_heads", "rotary_dim", "window_left", "window_right")
_BOOL_FIELDS: Final = ("normalize_key", "rotary_interleaved")
_FLOAT_FIELDS: Final = ("qk_norm_epsilon", "scale", "softcap")

# TensorRT's ONNX parser narrows INT attributes to int32, so a wider value would change silently.
_INT32_MAX: Final = 2**31 - 1

_EnumT = TypeVar("_EnumT", bound=enum.StrEnum)


def _invalid(name: str, rule: str, value: object, note: str | None = None) -> InvalidSpecError:
    return InvalidSpecError(f"{OP_TYPE} attribute {name} {rule}, got {value!r}.", note=note)


def _unknown_attribute(name: str, known: list[str]) -> InvalidSpecError:
    close = difflib.get_close_matches(name, known, n=1)
    return InvalidSpecError(
        f"{OP_TYPE} has no attribute of that name, got {name!r}.",
        note=f"the attributes are {', '.join(known)}.",
        hint=f"did you mean {close[0]!r}?" if close else None,
    )


def _as_enum(name: str, value: object, kind: type[_EnumT]) -> _EnumT:
    try:
        return kind(str(value))
    except ValueError:
        accepted = ", ".join(repr(str(member)) for member in kind)
        raise _invalid(name, "is not a known value", value, f"accepted: {accepted}.") from None


def _as_int(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _invalid(name, "must be an integer", value)
    if not -_INT32_MAX <= value <= _INT32_MAX:
        raise _invalid(name, "must fit in 32 bits", value)
    return value


def _as_bool(name: str, value: object) -> bool:
    if not isinstance(value, int) or value not in (0, 1):
        raise _invalid(name, "must be 0 or 1", value)
    return bool(value)


def _as_float32(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _invalid(name, "must be a number", value)
    if not math.isfinite(value):
        raise _invalid(name, "must be finite", value)
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        raise _invalid(name, "must fit in float32", value) from None
