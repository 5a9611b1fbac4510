"""What matching answers: every attention of a graph, in its order."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import onnx_ir as ir

from qkexport.match.recipe import Recipe
from qkexport.match.types import RecipeType
from qkexport.signature import AttentionSignature
from qkexport.spec import AttentionSpec


@dataclasses.dataclass(frozen=True)
class Replacement:
    """A value of the graph that the fused node computes.

    Attributes:
        value: The value.
        recipe: How it is made from the fused node's outputs.
    """

    value: ir.Value
    recipe: Recipe


@dataclasses.dataclass(frozen=True)
class Match:
    """An attention that is proven to be a QKNormAttention.

    Attributes:
        name: Its name in reports.
        node: Its last node; the fused node takes this place.
        signature: Attributes, inputs and outputs of the fused node.
        inputs: How each input is made, by the operator's names.
        outputs: Values that the fused node replaces, the attention's result first.
        nodes: Nodes that no longer have a use, up to sharing with others.
        types: Type and shape of each input recipe and of its parts.
    """

    name: str
    node: ir.Node
    signature: AttentionSignature
    inputs: Mapping[str, Recipe]
    outputs: tuple[Replacement, ...]
    nodes: tuple[ir.Node, ...]
    types: Mapping[Recipe, RecipeType]

    @property
    def spec(self) -> AttentionSpec:
        return self.signature.spec

    @property
    def has_norm(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class NearMiss:
    """An attention that stays as it is.

    Attributes:
        name: Its name in reports.
        node: Where the proof stopped; the attention's own last node where it has no norm.
        reason: Why, lower case, no full stop.
        has_norm: Query or key is normalized; without a norm there is nothing to fuse.
    """

    name: str
    node: ir.Node
    reason: str
    has_norm: bool


@dataclasses.dataclass(frozen=True)
class Fused:
    """A QKNormAttention node that is in the graph already."""

    name: str
    node: ir.Node
    spec: AttentionSpec

    @property
    def has_norm(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True)
class MatchReport:
    """All attentions of a graph, in its order. True where every norm on q or k is fused."""

    attentions: tuple[Match | NearMiss | Fused, ...]

    @property
    def matches(self) -> tuple[Match, ...]:
        return tuple(item for item in self.attentions if isinstance(item, Match))

    @property
    def near_misses(self) -> tuple[NearMiss, ...]:
        """Attentions with a norm that stay as they are."""
        return tuple(i for i in self.attentions if isinstance(i, NearMiss) and i.has_norm)

    @property
    def found(self) -> int:
        """Attentions with a norm on query or key."""
        return sum(item.has_norm for item in self.attentions)

    @property
    def fused(self) -> int:
        """Those that are, or can be, one QKNormAttention."""
        return sum(not isinstance(item, NearMiss) for item in self.attentions)

    def __bool__(self) -> bool:
        return self.fused == self.found
