"""The tolerance rule, in the one place where it stands.

A candidate may err, against the float64 oracle and row by row (a row is what lies along the last
axis), by

    2 * max(e, min(p * s, E)) + floor

where e is the error PyTorch makes on this row in the same type from the same inputs, E its largest
error in the tensor, s the largest magnitude of the row in the oracle, and p the 90th percentile of
PyTorch's e / s. Taking p keeps a row where PyTorch was lucky from demanding the same luck of the
candidate; E keeps the whole at twice PyTorch's error. The floor is what no computation in the type
avoids: one unit in the last place for the result and the random walk of a sum of K terms
accumulated in float32,

    floor = s * (ulp(T) + 2**-24 * sqrt(K)) + tiny(T).

A row that fails this is judged once more if the caller can tell how rounding is amplified on its
way through the model: rounding noise of half an ulp is put on every tensor of the float64
computation, and six times its effect (root mean square over the draws) is added to the floor. Two
draws decide where half of what they allow is enough, eight elsewhere.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Final

import torch

# FlashAttention's test rule; PyTorch and the candidate are two draws from the same distribution.
BASELINE_FACTOR: Final = 2.0
LUCK_QUANTILE: Final = 0.9
# With 8 draws, an error beyond six root mean squares has a chance of about 3e-4 for the worst case
# of a row that depends on one amplified number alone, before PyTorch's share is added.
NOISE_FACTOR: Final = 6.0
NOISE_DRAWS: Final = 8
# Draws after which rows far within their limit are believed. Two draws overestimate a root mean
# square by more than twice with a chance of 2 %: then half the limit is still within the limit.
FIRST_NOISE_DRAWS: Final = 2
BELIEVED_USAGE: Final = 0.5
_FLOAT32_HALF_ULP: Final = 2.0**-24


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """What is allowed: derived from PyTorch's error, or given by the user.

    Attributes:
        reduction_length: K of the floor: terms in the longest sum that makes an element.
        rtol: Given by the user: allowed error relative to the element; None derives.
        atol: Given by the user: allowed absolute error; None derives.
    """

    reduction_length: int = 1
    rtol: float | None = None
    atol: float | None = None

    @property
    def given(self) -> bool:
        """True when the user chose the numbers and nothing is derived."""
        return self.rtol is not None or self.atol is not None

    def relative_floor(self, dtype: torch.dtype) -> float:
        """The floor of a row per unit of its magnitude."""
        ulp = torch.finfo(dtype).eps
        return ulp + _FLOAT32_HALF_ULP * math.sqrt(max(self.reduction_length, 1))

    def describe(self, dtype: torch.dtype) -> str:
        """The derivation in one line."""
        if self.given:
            return f"given: atol {self.atol or 0.0:g} + rtol {self.rtol or 0.0:g} * |oracle|"
        ulp, name = torch.finfo(dtype).eps, str(dtype).removeprefix("torch.")
        return (
            f"{BASELINE_FACTOR:g} x PyTorch's {name} error + row magnitude x "
            f"(ulp {ulp:.2g} + 2^-24 x sqrt({self.reduction_length}))"
        )


@dataclasses.dataclass(frozen=True)
class RowErrors:
    """Errors of one output, per row; all `[num_rows]` float64.

    Attributes:
        candidate: Largest error of the candidate.
        baseline: Largest error of PyTorch in the same type; zeros where unknown.
        magnitude: Largest magnitude in the oracle.
        noise: Effect of rounding noise on the row, or None when it was not measured.
    """

    candidate: torch.Tensor
    baseline: torch.Tensor
    magnitude: torch.Tensor
    noise: torch.Tensor | None = None


def allowed_errors(rows: RowErrors, tolerance: Tolerance, dtype: torch.dtype) -> torch.Tensor:
    """The largest error that each row may have, `[num_rows]` float64.

    Args:
        rows: Errors and magnitudes of the rows.
        tolerance: How to derive what is allowed.
        dtype: Type of the candidate's output.
    """
    if tolerance.given:
        return (tolerance.atol or 0.0) + (tolerance.rtol or 0.0) * rows.magnitude
    floor = rows.magnitude * tolerance.relative_floor(dtype) + torch.finfo(dtype).tiny
    if rows.noise is not None:
        floor = floor + NOISE_FACTOR * rows.noise
    return BASELINE_FACTOR * _expected(rows) + floor


def _expected(rows: RowErrors) -> torch.Tensor:
    """What PyTorch errs by on each row, luck evened out."""
    if not rows.baseline.numel():
        return rows.baseline
    relative = rows.baseline / rows.magnitude.clamp_min(torch.finfo(torch.float32).tiny)
    typical = _quantile(relative, LUCK_QUANTILE) * rows.magnitude
    return torch.maximum(rows.baseline, typical.clamp_max(float(rows.baseline.max())))


def _quantile(x: torch.Tensor, q: float) -> float:
    # torch.quantile refuses more than 2**24 elements
    return float(x.kthvalue(max(1, math.ceil(q * x.numel()))).values)
