"""What a parity run found, as values that serialize themselves."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any, Final

from qkexport.compare import Comparison, OutputComparison
from qkexport.proof.layers.results import Localization
from qkexport.run.open import ENGINE_BACKENDS

# Random vectors of a few hundred elements reach 0.1; a wrong mask or norm stays above 0.5.
_UNRELATED: Final = 0.3


class Evidence(enum.StrEnum):
    """How far a file has come; each word says no more than it says."""

    CONVERTED = "CONVERTED"  # written
    BUILT = "BUILT"  # an engine exists
    RAN = "RAN"  # a backend evaluated it without an error
    MATCHED = "MATCHED"  # and its outputs equal the reference's within the tolerance


class Verdict(enum.StrEnum):
    """Outcome for one candidate on one backend."""

    MATCHED = "MATCHED"
    MISMATCHED = "MISMATCHED"
    FAILED = "FAILED"  # did not load or run
    SKIPPED = "SKIPPED"  # its backend is absent


@dataclasses.dataclass(frozen=True)
class CaseResult:
    """One candidate on one set of inputs.

    Attributes:
        label: Name of the case.
        shapes: Shape of each input.
        seed: That draws the inputs again.
        comparison: Verdict on each output; None if the candidate did not run.
        vacuous: Outputs whose reference tests nothing here, and why.
        error: What the candidate raised; empty if it ran.
        seconds: Time of the candidate's evaluation.
        replay: File with the inputs, saved because the case failed.
    """

    label: str
    shapes: Mapping[str, tuple[int, ...]]
    seed: int
    comparison: Comparison | None
    vacuous: Mapping[str, str] = dataclasses.field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0
    replay: str = ""

    def __bool__(self) -> bool:
        return self.comparison is not None and bool(self.comparison)

    @property
    def outputs(self) -> tuple[OutputComparison, ...]:
        """What was compared; nothing if the candidate did not run."""
        return () if self.comparison is None else self.comparison.outputs

    @property
    def failures(self) -> tuple[OutputComparison, ...]:
        return tuple(output for output in self.outputs if not output)


@dataclasses.dataclass(frozen=True)
class CandidateResult:
    """One candidate on one backend.

    Attributes:
        name: The file, as the user named it.
        backend: Who ran it.
        cases: In the order of the run.
        reason: Why it was skipped or did not load.
        skipped: The backend is absent.
        untested: Outputs whose reference was constant, empty, not finite or lost in PyTorch's own
            rounding in every case.
        localization: Where the error of its first failing case arises, if that was asked for.
        notes: Such as emulation of a type, or how outputs were paired.
    """

    name: str
    backend: str
    cases: tuple[CaseResult, ...] = ()
    reason: str = ""
    skipped: bool = False
    untested: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    localization: Localization | None = None

    def __bool__(self) -> bool:
        return bool(self.cases) and all(self.cases) and not self.untested

    @property
    def verdict(self) -> Verdict:
        if self.skipped:
            return Verdict.SKIPPED
        if self.reason or any(case.error for case in self.cases):
            return Verdict.FAILED
        return Verdict.MATCHED if self else Verdict.MISMATCHED

    @property
    def unrelated(self) -> bool:
        """True when no output of any case resembles the reference: it may be another model."""
        compared = [output for case in self.cases for output in case.outputs if output.num_rows]
        return bool(compared) and all(output.cosine < _UNRELATED for output in compared)

    @property
    def ran(self) -> bool:
        """True when at least one case ran to its end."""
        return any(case.comparison is not None for case in self.cases)

    @property
    def evidence(self) -> Evidence:
        """The highest tier that this run shows; of a file that did not run, that it exists."""
        if self:
            return Evidence.MATCHED
        if self.ran:
            return Evidence.RAN
        return Evidence.BUILT if self.backend in ENGINE_BACKENDS else Evidence.CONVERTED

    @property
    def worst(self) -> tuple[CaseResult, OutputComparison] | None:
        """The output that uses up its allowance most, failures first."""
        pairs = [(case, output) for case in self.cases for output in case.outputs]
        return max(pairs, key=lambda pair: (not pair[1], pair[1].usage), default=None)


@dataclasses.dataclass(frozen=True)
class PairDifference:
    """Largest distance between two candidates' outputs over all cases, the oracle left aside."""

    left: str
    right: str
    output: str
    max_abs_difference: float


@dataclasses.dataclass(frozen=True)
class ParityResult:
    """A whole run; true if every candidate that ran matched and at least one did.

    Attributes:
        reference: The model that was right.
        suite: `quick`, `full`, or the file the inputs came from.
        seed: Of the suite.
        candidates: One entry for each file and backend.
        skipped_cases: Inputs that the reference itself refuses, and why.
        absent: Required backends that are not here.
        pairs: Differences between candidates.
        environment: Versions and machine.
        seconds: Time of loading, of the oracle, of PyTorch, of the candidates, of comparing,
            and of the oracle under noise where that was needed.
    """

    reference: str
    suite: str
    seed: int
    candidates: tuple[CandidateResult, ...]
    skipped_cases: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    pairs: tuple[PairDifference, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    seconds: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def __bool__(self) -> bool:
        ran = [candidate for candidate in self.candidates if not candidate.skipped]
        return bool(ran) and all(ran) and not self.absent

    def tier(self, candidate: CandidateResult) -> str:
        """A candidate's evidence and what it rests on: `MATCHED(ort, suite full, seed 0)`."""
        tier = candidate.evidence
        if tier is Evidence.MATCHED:
            return f"{tier}({candidate.backend}, suite {self.suite}, seed {self.seed})"
        return f"{tier}({candidate.backend})" if tier is Evidence.RAN else str(tier)

    def to_dict(self) -> dict[str, Any]:
        """The JSON document; its schema is published as `report/parity.schema.json`."""
        from qkexport.proof.document import parity_document

        return parity_document(self)
