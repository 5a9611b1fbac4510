"""One case made ready: inputs that the reference accepts, and its answers to them."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping

import torch

from qkexport.compare import NoiseEffects
from qkexport.compare.vacuity import why_vacuous
from qkexport.errors import QkexportError, UsageError
from qkexport.proof.cases import Case, draw
from qkexport.proof.reference import Reference
from qkexport.run.runner import Tensors
from qkexport.trial import Trial


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Inputs and what is true of them.

    Attributes:
        label: Name of the case.
        seed: That draws the inputs again.
        inputs: By the reference's names.
        exact: Outputs in float64.
        baseline: What PyTorch computes in the model's own types.
        vacuous: Outputs that test nothing, and why.
        noise: Effects of rounding, by the type that a candidate stores values in (None: as the
            reference does); filled when first needed.
    """

    label: str
    seed: int
    inputs: Tensors
    exact: Tensors
    baseline: Tensors
    vacuous: Mapping[str, str]
    noise: dict[torch.dtype | None, NoiseEffects] = dataclasses.field(default_factory=dict)


# Takes `exact` or `baseline` and the outputs, and returns where they are from now on.
Store = Callable[[str, Tensors], Tensors]


def as_they_are(_: str, outputs: Tensors) -> Tensors:
    """Leaves outputs in memory; a `Store`."""
    return outputs


class Refused(Exception):  # noqa: N818  the reference's answer, not an error of ours
    """The reference runs at none of the sizes of a case."""


def prepare(
    reference: Reference,
    case: Case | Trial | Tensors,
    rounded_to: torch.dtype | None,
    seconds: dict[str, float],
    store: Store = as_they_are,
) -> Prepared:
    """Draws a case and evaluates the reference on it.

    Args:
        reference: The model.
        case: A case of a suite, a trial, or inputs that the user gave.
        rounded_to: Round floating inputs to this type first, so that a candidate which takes them
            narrower than the reference sees the same values.
        seconds: Time spent is added under `oracle` and `pytorch`.
        store: Takes outputs as soon as they are there, so that no two evaluations' are in memory.

    Raises:
        Refused: The reference runs at none of the sizes of a suite's case.
        QkexportError: The reference cannot run the inputs that the user gave.
    """
    if isinstance(case, Trial):
        return _evaluated(
            reference, case.label, 0, _rounded(case.inputs, rounded_to), seconds, store
        )
    if not isinstance(case, Case):
        return _evaluated(reference, "given", 0, _rounded(case, rounded_to), seconds, store)
    refusal = ""
    for sizes in case.sizes:
        inputs = _rounded(draw(reference, case, sizes), rounded_to)
        try:
            return _evaluated(reference, case.label, case.seed, inputs, seconds, store)
        except Exception as error:  # a module may raise anything at sizes it was not made for
            if isinstance(error, QkexportError) and not isinstance(error, UsageError):
                raise
            refusal = (str(error).splitlines() or [type(error).__name__])[0]
    raise Refused(refusal)


def _rounded(inputs: Tensors, dtype: torch.dtype | None) -> dict[str, torch.Tensor]:
    return {
        name: x.to(dtype).to(x.dtype) if dtype is not None and x.is_floating_point() else x
        for name, x in inputs.items()
    }


def _evaluated(
    reference: Reference,
    label: str,
    seed: int,
    inputs: Tensors,
    seconds: dict[str, float],
    store: Store,
) -> Prepared:
    with _timed(seconds, "pytorch"):
        in_pytorch = reference.baseline(inputs, None)
    assert in_pytorch is not None
    baseline = store("baseline", in_pytorch)
    del in_pytorch
    with _timed(seconds, "oracle"):
        in_float64 = reference.exact(inputs)
    exact = store("exact", in_float64)
    del in_float64
    reasons = {name: why_vacuous(value) for name, value in exact.items()}
    vacuous = {name: reason for name, reason in reasons.items() if reason}
    return Prepared(label, seed, inputs, exact, baseline, vacuous)


@contextlib.contextmanager
def _timed(seconds: dict[str, float], what: str) -> Iterator[None]:
    """Adds the time of a block that succeeds."""
    start = time.perf_counter()
    yield
    seconds[what] = seconds.get(what, 0.0) + time.perf_counter() - start
