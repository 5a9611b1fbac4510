"""Checks a converted model against its source: same inputs, stock ONNX Runtime, float64 oracle."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from qkexport.compare import Comparison, OutputComparison, Rules, Status, compare_outputs
from qkexport.compare.vacuity import why_vacuous
from qkexport.draw_inputs import draw_inputs, index_bounds
from qkexport.errors import UnsupportedModelError, VerificationError
from qkexport.run.ort_runner import OrtRunner
from qkexport.size_cases import SizeCase, size_cases
from qkexport.verification import Verification, VerifiedCase
from qkexport.verify_reference import Reference, open_reference

if TYPE_CHECKING:
    import torch

    from qkexport.trace import Trace

_LOG: Final = logging.getLogger(__name__)
Tensors = Mapping[str, "torch.Tensor"]


def verify_conversion(trace: Trace, candidate: Path, *, seed: int = 0) -> Verification:
    """Runs a source and its conversion on the same inputs and compares the outputs.

    Args:
        trace: The source, its inputs and what they may be.
        candidate: The converted model as a file.
        seed: Of the random inputs.

    Raises:
        VerificationError: The source itself cannot be run on inputs of the traced sizes.
        UnsupportedModelError: ONNX Runtime cannot load the candidate.
        BackendUnavailableError: ONNX Runtime is not installed.
    """
    reference = open_reference(trace)
    bounds = index_bounds(trace.model)
    cases: list[VerifiedCase] = []
    skipped: list[str] = []
    with OrtRunner(candidate) as runner:
        for case in _cases(trace, bounds, seed):
            _LOG.info("verify with %s inputs", case.label)
            done = _check(case, reference, runner)
            if isinstance(done, VerifiedCase):
                cases.append(done)
            else:
                skipped.append(done)
    return Verification(tuple(cases), tuple(skipped), runner.notes)


@dataclasses.dataclass(frozen=True)
class _Case:
    """One check; `attempts` are tried in order until the source accepts one."""

    label: str
    attempts: tuple[Mapping[str, int], ...]
    trace: Trace
    bounds: Mapping[str, int]
    seed: int

    def inputs(self, sizes: Mapping[str, int]) -> Tensors:
        examples = self.trace.examples
        if self.label == "given":
            return examples
        return draw_inputs(
            self.trace.domain, sizes, seed=self.seed, bounds=self.bounds, examples=examples
        )


def _cases(trace: Trace, bounds: Mapping[str, int], seed: int) -> Iterator[_Case]:
    chosen = list(size_cases(trace.domain))
    if trace.examples and len(trace.examples) == len(trace.domain.inputs):
        chosen.insert(0, SizeCase("given", chosen[0].candidates))
    for case in chosen:
        yield _Case(case.label, case.candidates, trace, bounds, seed)


def _check(case: _Case, reference: Reference, runner: OrtRunner) -> VerifiedCase | str:
    reason = ""
    for sizes in case.attempts:
        inputs = case.inputs(sizes)
        try:
            baseline = reference.baseline(inputs)
        except Exception as error:  # whatever the model's own code raises
            reason = f"{type(error).__name__}: {error}".splitlines()[0]
            continue
        return _compare(case.label, sizes, inputs, baseline, reference, runner)
    if case.label in ("given", "traced"):
        message = f"Source {case.trace.source.name} must run on inputs it was traced with."
        message = f"{message[:-1]}, got {reason}."
        raise VerificationError(message, hint="give real ones with --inputs, or --no-verify.")
    return f"the source itself refuses {case.label} sizes: {reason}"


def _compare(
    label: str,
    sizes: Mapping[str, int],
    inputs: Tensors,
    baseline: Tensors,
    reference: Reference,
    runner: OrtRunner,
) -> VerifiedCase:
    try:
        found = runner.run(inputs)
    except UnsupportedModelError as error:
        lost = [OutputComparison(name, Status.MISSING, error.message) for name in baseline]
        return VerifiedCase(label, sizes, Comparison(tuple(lost)), {})
    oracle = reference.oracle(inputs)
    comparison = compare_outputs(
        found,
        oracle,
        baseline,
        rules=Rules(vacuous_fails=False),
        noise=lambda: reference.noisy(inputs),
    )
    reasons = {name: why_vacuous(value) for name, value in oracle.items()}
    vacuous = {name: f"the reference {reason}" for name, reason in reasons.items() if reason}
    return VerifiedCase(label, sizes, comparison, vacuous)
