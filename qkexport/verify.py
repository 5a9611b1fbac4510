"""Checks a converted model against its source: same inputs, stock ONNX Runtime, float64 oracle.

It is a parity run with few cases: sizes as traced, one, and odd, which is what a fusion gets wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from qkexport.domain import ModelDomain, with_traced_sizes
from qkexport.errors import QkexportError, VerificationError
from qkexport.input_options import InputSpec
from qkexport.load import OnnxSource, Source, load_source
from qkexport.proof.candidate import Candidate, ParitySettings
from qkexport.proof.cases import Case, is_mask
from qkexport.proof.reference import Reference, open_reference
from qkexport.proof.session import Run
from qkexport.proof.values import Padding, Values
from qkexport.run.ort_runner import STOCK, OrtRunner
from qkexport.size_cases import size_cases
from qkexport.trial import Trial
from qkexport.verification import Verification

if TYPE_CHECKING:
    from torch import Tensor

Inputs = Mapping[str, "Tensor | InputSpec"]


def verify_conversion(
    source: Source, candidate: Path, *, inputs: Inputs | None = None, seed: int = 0
) -> Verification:
    """Runs a source and its conversion on the same inputs and compares the outputs.

    Args:
        source: With complete example inputs, or an exported program, or an ONNX file.
        candidate: The converted model as a file.
        inputs: For an ONNX source: sizes and values to check it at.
        seed: Of the random inputs.

    Raises:
        VerificationError: The source itself cannot be run.
        UnsupportedModelError: ONNX Runtime cannot load the candidate.
        BackendUnavailableError: ONNX Runtime is not installed.
    """
    reference = _open(source, inputs or {})
    runner = OrtRunner(candidate)
    judged = Candidate(str(candidate), STOCK, lambda: runner)
    with Run(reference, _cases(reference, seed), ParitySettings()) as run:
        try:
            result = run.candidate(judged, keep=False)
        except QkexportError:
            raise
        except Exception as error:  # whatever the model's own code raises
            raise _refused(source, f"{type(error).__name__}: {error}") from error
    refused = dict(run.refused)
    if "traced" in refused:
        raise _refused(source, refused["traced"])
    if result.reason:
        raise _refused(source, result.reason.splitlines()[0].rstrip("."))
    skipped = tuple(f"{label} sizes: the source says {why}" for label, why in refused.items())
    return Verification(result, skipped)


def _open(source: Source, inputs: Inputs) -> Reference:
    if not isinstance(source, OnnxSource):
        return open_reference(source)
    # read again: the graph in memory has been rewritten since
    reference = open_reference(load_source(source.path))
    reference.domain = domain_at(reference.domain, inputs)
    reference.examples = {
        name: value for name, value in inputs.items() if not isinstance(value, InputSpec)
    }
    return reference


def domain_at(domain: ModelDomain, inputs: Inputs) -> ModelDomain:
    """The domain of an ONNX graph with the sizes that given inputs have.

    Raises:
        UsageError: An input is unknown or has a shape that does not fit.
    """
    return with_traced_sizes(domain, {name: tuple(x.shape) for name, x in inputs.items()})


def _cases(reference: Reference, seed: int) -> list[Case | Trial | Mapping[str, Tensor]]:
    masks = [item for item in reference.domain.inputs if is_mask(item)]
    # padding of [B, S] ends a row, since causal rows that see nothing have no one right answer
    whole = all(len(item.shape) > 2 for item in masks)
    padding = Padding.SCATTERED if whole else Padding.RIGHT
    cases: list[Case | Trial | Mapping[str, Tensor]] = [
        Case(size.label, size.candidates, Values.NORMAL, padding, seed)
        for size in size_cases(reference.domain)
    ]
    if reference.trials:
        cases = list(reference.trials)
    examples = reference.examples
    if examples and len(examples) == len(reference.inputs):
        cases.insert(0, examples)
    return cases


def _refused(source: Source, reason: str) -> VerificationError:
    message = f"Source {source.name} must run to be compared with, got {reason}."
    return VerificationError(message, hint="give real inputs with --inputs, or pass --no-verify.")
