"""Where two models part, attention by attention."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from qkexport.compare import OutputComparison


class LayerVerdict(enum.StrEnum):
    """What one attention does to the error."""

    MATCHED = "matched"
    ORIGIN = "origin"  # its inputs are within their budget, its output is not
    INHERITED = "inherited"  # its inputs are beyond their budget already


@dataclasses.dataclass(frozen=True)
class Place:
    """Where in an attention the difference is largest.

    Attributes:
        batch: Batch entry.
        head: Query head.
        query: Position of the query.
        key: Position of the key that accounts for most of the difference; None where none does.
        share: Of the difference, that the key accounts for.
    """

    batch: int
    head: int
    query: int
    key: int | None = None
    share: float = 0.0

    def __str__(self) -> str:
        text = f"worst at batch entry {self.batch}, head {self.head}, query {self.query}"
        if self.key is None:
            return text
        return f"{text}; key {self.key} accounts for {self.share:.0%} of the difference there"

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON documents."""
        return {"batch": self.batch, "head": self.head, "query": self.query, "key": self.key}


@dataclasses.dataclass(frozen=True)
class LayerResult:
    """One attention of the candidate against the same attention of the reference.

    Attributes:
        index: In the order of the graph.
        node: Name in the candidate.
        module: Path of the module in the reference; empty where unknown.
        verdict: See `LayerVerdict`.
        inputs: Query, key and value.
        output: The attention's result.
    """

    index: int
    node: str
    module: str
    verdict: LayerVerdict
    inputs: tuple[OutputComparison, ...]
    output: OutputComparison

    def __bool__(self) -> bool:
        return self.verdict is LayerVerdict.MATCHED

    @property
    def input_error(self) -> float:
        """The largest error of query, key and value."""
        return max(output.max_abs_error for output in self.inputs)

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON documents."""
        return {
            "index": self.index,
            "node": self.node,
            "module": self.module,
            "verdict": str(self.verdict),
            "max_abs_error": self.output.max_abs_error,
            "usage": self.output.usage if self.output.usage < float("inf") else None,
        }


@dataclasses.dataclass(frozen=True)
class Localization:
    """All attentions on one failing case, and what is known of the first that errs.

    Attributes:
        case: Label of the case.
        layers: In the order of the graph.
        reasons: Sentences that say where and why, the most telling first.
        problem: Why nothing could be localized; empty when it could.
        place: Where in the attention that errs first; None where the error arises elsewhere.
    """

    case: str
    layers: tuple[LayerResult, ...] = ()
    reasons: tuple[str, ...] = ()
    problem: str = ""
    place: Place | None = None

    @property
    def first(self) -> LayerResult | None:
        """The first attention beyond its budget."""
        return next((layer for layer in self.layers if not layer), None)

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON documents."""
        return {
            "case": self.case,
            "layers": [layer.to_dict() for layer in self.layers],
            "reasons": list(self.reasons),
            "problem": self.problem,
            "place": None if self.place is None else self.place.to_dict(),
        }
