"""What the check of a conversion found, as a value that tests itself and serializes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qkexport.proof.results import CandidateResult, CaseResult


@dataclasses.dataclass(frozen=True)
class Verification:
    """True if every output of every case matched and at least one of them tested something.

    Attributes:
        result: The converted model in stock ONNX Runtime, case by case.
        skipped: Sizes that the source itself refuses, and why.
        notes: What a reader must know, besides the notes of the result.
    """

    result: CandidateResult
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        cases = self.result.cases
        compared = {output.name for case in cases for output in case.outputs}
        return bool(cases) and all(cases) and bool(compared - set(self.result.untested))

    @property
    def max_abs_error(self) -> float:
        """Largest distance from the float64 oracle."""
        errors = [output.max_abs_error for case in self.result.cases for output in case.outputs]
        return max(errors, default=0.0)

    @property
    def all_notes(self) -> tuple[str, ...]:
        return (*self.notes, *self.skipped, *self.result.notes)

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON documents."""
        return {
            "max_abs_error": self.max_abs_error,
            "passed": bool(self),
            "cases": [_case(case) for case in self.result.cases],
            "notes": list(self.all_notes),
        }


def _case(case: CaseResult) -> dict[str, Any]:
    return {
        "case": case.label,
        "shapes": {name: list(shape) for name, shape in case.shapes.items()},
        "error": case.error,
        "outputs": [
            {
                "name": output.name,
                "status": str(output.status),
                "detail": output.detail,
                "max_abs_error": output.max_abs_error,
                "usage": output.usage,
                "tests_nothing": case.vacuous.get(output.name),
            }
            for output in case.outputs
        ],
    }
