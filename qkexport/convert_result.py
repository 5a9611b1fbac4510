"""What a conversion did, as a value that tests itself and serializes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qkexport.attention_record import AttentionRecord, AttentionStatus

if TYPE_CHECKING:
    from qkexport.verification import Verification


@dataclasses.dataclass(frozen=True)
class ConvertResult:
    """What a conversion did.

    Attributes:
        source: The source as it was named.
        output: Where the model was written; None if it was refused or not wanted.
        form: Form of the model.
        runtime: Runtime the model was lowered for.
        opset: ONNX opset of the model.
        attentions: Every attention of the graph, in order.
        required: Attentions that had to be fused.
        verification: The numerical check, or None if it was not wanted.
        seconds: Time of each stage.
    """

    source: str
    output: Path | None
    form: str
    runtime: str
    opset: int
    attentions: tuple[AttentionRecord, ...]
    required: int
    verification: Verification | None
    seconds: Mapping[str, float]

    @property
    def fused(self) -> int:
        """Attentions that are QKNormAttention nodes now."""
        return sum(record.status is AttentionStatus.FUSED for record in self.attentions)

    @property
    def found(self) -> int:
        """Attentions with a norm on queries or keys, fused or not."""
        return sum(record.status is not AttentionStatus.NO_QK_NORM for record in self.attentions)

    @property
    def enough_fused(self) -> bool:
        return self.fused >= self.required

    def __bool__(self) -> bool:
        verified = self.verification is None or bool(self.verification)
        return self.enough_fused and verified

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON documents."""
        return {
            "source": self.source,
            "output": None if self.output is None else str(self.output),
            "form": self.form,
            "runtime": self.runtime,
            "opset": self.opset,
            "attentions": [record.to_dict() for record in self.attentions],
            "fused": self.fused,
            "found": self.found,
            "required": self.required,
            "verified": None if self.verification is None else self.verification.to_dict(),
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "passed": bool(self),
        }
