"""What a comparison says, as values that print, serialize and test themselves."""

from __future__ import annotations

import dataclasses
import enum

from qkexport.compare.kinds import KindTable


class Status(enum.StrEnum):
    """Verdict on one output."""

    MATCHED = "matched"
    AMBIGUOUS = "ambiguous"  # within tolerance, but a near tie of logits fell the other way
    MISMATCHED = "mismatched"
    NON_FINITE = "non-finite"  # a NaN or infinity where there may be none, or none where one is
    DEGENERATE = "degenerate"  # constant where the reference is not
    VACUOUS = "vacuous"  # the reference is empty, constant or not finite: nothing was tested
    MISSING = "missing"
    EXTRA = "extra"
    WRONG_SHAPE = "wrong-shape"
    WRONG_DTYPE = "wrong-dtype"

    @property
    def passed(self) -> bool:
        return self in (Status.MATCHED, Status.AMBIGUOUS)


@dataclasses.dataclass(frozen=True)
class WorstElement:
    """The element that uses up its allowance most.

    Attributes:
        index: Where, in the output's own shape.
        candidate: Its value.
        oracle: The exact value.
        baseline: PyTorch's value in the candidate's type, or None.
        error: `|candidate - oracle|`.
        allowed: The largest error its row may have.
        head: Query head, where the output has heads.
    """

    index: tuple[int, ...]
    candidate: float
    oracle: float
    baseline: float | None
    error: float
    allowed: float
    head: int | None = None


@dataclasses.dataclass(frozen=True)
class ArgmaxAgreement:
    """Whether the largest logit of each row is the same one.

    Attributes:
        rows: Rows compared.
        agree: Rows with the same argmax.
        near_ties: Rows that differ where the two logits are closer than the errors allowed.
        smallest_margin: Smallest distance between the oracle's two largest logits in a row.
    """

    rows: int
    agree: int
    near_ties: int
    smallest_margin: float


@dataclasses.dataclass(frozen=True)
class OutputComparison:
    """One output against the oracle.

    Attributes:
        name: Name in the reference.
        status: Verdict.
        detail: One sentence that says why.
        dtype: Type of the candidate's output.
        shape: Shape of the candidate's output.
        max_abs_error: Candidate against oracle.
        max_rel_error: Relative to each element, elements of zero left out.
        baseline_error: PyTorch in the candidate's type against the oracle; None if unknown.
        worst: The element closest to its limit, or beyond it.
        usage: Error over allowance at the worst row; above 1 is a mismatch.
        derivation: Where the allowance comes from.
        noise_measured: The effect of rounding noise was needed for the verdict.
        needed_factor: Multiple of PyTorch's error (beyond the floor) that would pass.
        cosine: Between candidate and oracle.
        ulps: Histogram, see `compare.ulp`.
        kinds: Non-finite values.
        rows_failed: Rows beyond their allowance or with a misplaced non-finite value.
        num_rows: Rows compared.
        head_usage: Largest usage of each head, where the output has heads.
        heat: Usage by head (or batch entry) and position, downsampled.
        heat_positions: Positions that the columns of `heat` stand for.
        argmax: For logits.
        blind: Every row may err by its whole magnitude, because PyTorch does: zeros would pass.
    """

    name: str
    status: Status
    detail: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    max_abs_error: float = 0.0
    max_rel_error: float = 0.0
    baseline_error: float | None = None
    worst: WorstElement | None = None
    usage: float = 0.0
    derivation: str = ""
    noise_measured: bool = False
    needed_factor: float = 0.0
    cosine: float = 1.0
    ulps: tuple[int, ...] = ()
    kinds: KindTable | None = None
    rows_failed: int = 0
    num_rows: int = 0
    head_usage: tuple[float, ...] | None = None
    heat: tuple[tuple[float, ...], ...] = ()
    heat_positions: int = 0
    argmax: ArgmaxAgreement | None = None
    blind: bool = False

    def __bool__(self) -> bool:
        return self.status.passed


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All outputs of one candidate for one set of inputs."""

    outputs: tuple[OutputComparison, ...]

    def __bool__(self) -> bool:
        return bool(self.outputs) and all(self.outputs)  # nothing compared is nothing matched

    @property
    def max_abs_error(self) -> float:
        return max((output.max_abs_error for output in self.outputs), default=0.0)

    @property
    def failures(self) -> tuple[OutputComparison, ...]:
        return tuple(output for output in self.outputs if not output)
