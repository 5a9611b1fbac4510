"""Adds to a failing candidate where its error arises."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING

from qkexport.compare import Tolerance
from qkexport.proof.layers.localize import localize
from qkexport.proof.layers.results import Localization
from qkexport.proof.pairing import pair
from qkexport.run.onnx_torch_runner import OnnxTorchRunner

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch

    from qkexport.load import Source
    from qkexport.proof.results import CandidateResult, CaseResult
    from qkexport.proof.session import Run


def localized(result: CandidateResult, source: Source, run: Run) -> CandidateResult:
    """The result, with the localization of its smallest failing case if there is one.

    Args:
        result: A candidate that was run with its cases kept.
        source: The reference.
        run: The run it belongs to.
    """
    failing = [case for case in result.cases if case.failures]
    if not failing:
        return result
    chosen = min(failing, key=_size)
    case = run.case(chosen.label)
    if case is None or Path(result.name).suffix != ".onnx":
        return result
    settings, reference = run.settings, run.reference

    def inputs(model: ir.Model) -> dict[str, torch.Tensor]:
        runner = OnnxTorchRunner(model)
        known = {info.name for info in (*runner.inputs, *runner.outputs)}
        declared = {own: name for own, name in settings.declared.items() if own in known}
        return pair(reference, runner, declared).feeds(case.inputs)

    tolerance = Tolerance(reference.reduction_length, settings.rtol, settings.atol)
    found: Localization = localize(
        source, Path(result.name), result.backend, chosen.label, inputs, tolerance
    )
    return dataclasses.replace(result, localization=found)


def _size(case: CaseResult) -> int:
    return sum(math.prod(shape) for shape in case.shapes.values())
