"""Bisects what comes before the first attention, down to the operator that errs first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import onnx_ir as ir
import torch

from qkexport.compare import NoiseEffects, Rules, Tolerance, compare_outputs
from qkexport.compare.tolerance import NOISE_DRAWS
from qkexport.oracle.graph import noise_tap
from qkexport.oracle.noise import RoundingNoise
from qkexport.proof.layers.points import module_of
from qkexport.proof.layers.taps import candidate_values, interpreted_values

Tensors = Mapping[str, torch.Tensor]


def first_deviation(
    reference: ir.Model,
    reference_inputs: Tensors,
    candidate_inputs: Tensors,
    path: Path,
    backend: str,
    tolerance: Tolerance,
) -> list[str]:
    """Names the first value, known by one name to both graphs, that is beyond its budget.

    A candidate that was exported from the reference keeps its names; of one that was not, nothing
    is said.

    Args:
        reference: The reference's graph.
        reference_inputs: By its names.
        candidate_inputs: By the candidate's.
        path: The candidate.
        backend: Who runs it.
        tolerance: As for the whole model.
    """
    candidate = ir.load(path)
    known = {value.name for node in reference.graph for value in node.outputs}
    shared = [
        (str(value.name), node)
        for node in candidate.graph
        for value in node.outputs
        if value.name in known and value.dtype is not None and value.dtype.is_floating_point()
    ]
    if not shared:
        return []
    names = [name for name, _ in shared]
    exact = interpreted_values(reference, reference_inputs, names, exact=True)
    native = interpreted_values(reference, reference_inputs, names, exact=False)
    found = candidate_values(path, backend, candidate_inputs, names)
    for name, node in shared:
        if name not in exact or exact[name].shape != found[name].shape:
            continue
        same_type = native[name].dtype == found[name].dtype
        comparison = compare_outputs(
            {name: found[name]},
            {name: exact[name]},
            {name: native[name]} if same_type else None,
            rules=Rules(tolerance, vacuous_fails=False),
            noise=_noise(
                reference, reference_inputs, name, None if same_type else found[name].dtype
            ),
        )
        if not comparison:
            usage = comparison.outputs[0].usage
            module = module_of(node)
            place = f"{node.op_type} in {module}" if module else node.op_type
            return [f"the first value that differs is {name} of {place} ({usage:.3g} x)"]
    return []


def _noise(model: ir.Model, inputs: Tensors, name: str, narrow: torch.dtype | None) -> NoiseEffects:
    def draws() -> Iterator[dict[str, torch.Tensor]]:
        for seed in range(NOISE_DRAWS):
            change = noise_tap(RoundingNoise(seed, narrow))
            yield interpreted_values(model, inputs, [name], exact=True, change=change)

    return NoiseEffects(draws)
