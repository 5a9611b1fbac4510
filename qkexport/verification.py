"""What the check of a conversion found, as a value that tests itself and serializes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from qkexport.compare import Comparison


@dataclasses.dataclass(frozen=True)
class VerifiedCase:
    """One set of inputs.

    Attributes:
        label: Where the inputs come from: `given`, or drawn at `traced`, `one` or `odd` sizes.
        sizes: Size of each symbol; empty where all shapes are fixed.
        comparison: Verdict on each output.
        vacuous: Outputs whose reference is constant, which tests nothing.
    """

    label: str
    sizes: Mapping[str, int]
    comparison: Comparison
    vacuous: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        outputs = [
            {
                "name": output.name,
                "status": str(output.status),
                "detail": output.detail,
                "max_abs_error": output.max_abs_error,
                "usage": output.usage,
                "tests_nothing": self.vacuous.get(output.name),
            }
            for output in self.comparison.outputs
        ]
        return {"case": self.label, "sizes": dict(self.sizes), "outputs": outputs}


@dataclasses.dataclass(frozen=True)
class Verification:
    """All cases; true if every output of every case matched and at least one tested something.

    Attributes:
        cases: What was compared.
        skipped: Cases that the source itself cannot run, and why.
        notes: What a reader must know, such as emulation of a type.
    """

    cases: tuple[VerifiedCase, ...]
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        matched = all(case.comparison for case in self.cases)
        return matched and any(
            output.name not in case.vacuous
            for case in self.cases
            for output in case.comparison.outputs
        )

    @property
    def max_abs_error(self) -> float:
        """Largest distance from the float64 oracle."""
        return max((case.comparison.max_abs_error for case in self.cases), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON documents."""
        return {
            "max_abs_error": self.max_abs_error,
            "passed": bool(self),
            "cases": [case.to_dict() for case in self.cases],
            "skipped": list(self.skipped),
            "notes": list(self.notes),
        }
