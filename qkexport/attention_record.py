"""What is said about each attention of a model, in results, tables and JSON."""

from __future__ import annotations

import dataclasses
import enum
from typing import TYPE_CHECKING, Any

from qkexport.spec import AttentionSpec

if TYPE_CHECKING:
    from qkexport.match.report import Fused, Match, MatchReport, NearMiss


class AttentionStatus(enum.StrEnum):
    """What became of one attention."""

    FUSED = "fused"
    FUSABLE = "fusable"  # matched, in a model that is only looked at
    SKIPPED = "skipped"
    NO_QK_NORM = "no-qk-norm"


@dataclasses.dataclass(frozen=True)
class AttentionRecord:
    """One attention.

    Attributes:
        node: Name of the node that stands for it in the graph.
        status: What became of it.
        spec: Of the fused operator; None if it was not fused.
        reason: Why it was not fused; None if it was.
    """

    node: str
    status: AttentionStatus
    spec: AttentionSpec | None = None
    reason: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON documents."""
        document: dict[str, Any] = {"node": self.node, "status": str(self.status)}
        if self.spec is not None:
            document["spec"] = self.spec.to_attributes()
        else:
            document["reason"] = self.reason
        return document


def records_of(report: MatchReport, *, match: AttentionStatus) -> tuple[AttentionRecord, ...]:
    """One record for each attention of a report.

    Args:
        report: From `find_attention`.
        match: What a match is called: fused where it will be rewritten, fusable where it will not.
    """
    return tuple(_record(item, match) for item in report.attentions)


def _record(item: Match | NearMiss | Fused, match: AttentionStatus) -> AttentionRecord:
    from qkexport.match.report import Match, NearMiss

    if isinstance(item, NearMiss):
        status = AttentionStatus.SKIPPED if item.has_norm else AttentionStatus.NO_QK_NORM
        stopped = item.node.name or item.node.op_type
        reason = item.reason if stopped == item.name else f"{item.reason} (at {stopped})"
        return AttentionRecord(item.name, status, reason=reason)
    status = match if isinstance(item, Match) else AttentionStatus.FUSED
    return AttentionRecord(item.name, status, spec=item.spec)
