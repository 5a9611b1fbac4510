"""Finds the first attention whose error grows beyond its budget, and says why."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import onnx_ir as ir
import torch

from qkexport.compare import NoiseEffects, OutputComparison, Rules, Tolerance, compare_outputs
from qkexport.compare.tolerance import NOISE_DRAWS
from qkexport.errors import QkexportError
from qkexport.oracle.graph import noise_tap
from qkexport.oracle.noise import RoundingNoise
from qkexport.proof.fused_graph import fused_graph
from qkexport.proof.layers.explain import Captured, explain, find_place
from qkexport.proof.layers.points import AttentionPoint, attention_points
from qkexport.proof.layers.results import LayerResult, LayerVerdict, Localization, Place
from qkexport.proof.layers.taps import candidate_values, interpreted_values, weight_or_input
from qkexport.proof.layers.upstream import first_deviation

if TYPE_CHECKING:
    from qkexport.load import Source

Tensors = Mapping[str, torch.Tensor]
_COMPARED = ("query", "key", "value")


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two models on one set of inputs.

    Attributes:
        model: Its graph, attentions fused.
        inputs: By its own names.
        points: Its attentions.
    """

    model: ir.Model
    inputs: Tensors
    points: list[AttentionPoint]

    @property
    def tapped(self) -> set[str]:
        """Everything about the attentions that nodes make."""
        values = [
            value for point in self.points for value in (*point.inputs.values(), point.output)
        ]
        return {str(v.name) for v in values if weight_or_input(v, self.inputs) is None}

    def named(self, values: Tensors) -> dict[str, torch.Tensor]:
        """What is compared, as `index name`."""
        return {
            f"{index} {name}": self._of(value, values)
            for index, point in enumerate(self.points)
            for name, value in (
                *((name, point.inputs[name]) for name in _COMPARED),
                ("output", point.output),
            )
        }

    def through(self, index: int, values: Tensors) -> Captured:
        """One attention with all that went through it."""
        point = self.points[index]
        inputs = {name: self._of(value, values) for name, value in point.inputs.items()}
        return Captured(point, inputs, self._of(point.output, values))

    def _of(self, value: ir.Value, values: Tensors) -> torch.Tensor:
        known = weight_or_input(value, self.inputs)
        return values[str(value.name)] if known is None else known


def localize(
    source: Source,
    path: Path,
    backend: str,
    case: str,
    inputs: Callable[[ir.Model], Tensors],
    tolerance: Tolerance,
) -> Localization:
    """Compares a candidate with its reference at every attention.

    Args:
        source: The reference.
        path: The candidate, an .onnx file with QKNormAttention nodes.
        backend: Who runs it.
        case: Label of the case.
        inputs: The inputs of the case by the names of a graph.
        tolerance: As for the whole model.
    """
    try:
        reference = _side(fused_graph(source), inputs)
        candidate = _side(ir.load(path), inputs)
        problem = _problem(reference, candidate)
        if problem:
            return Localization(case, problem=problem)
        return _localize(reference, candidate, path, backend, case, tolerance)
    except QkexportError as error:
        return Localization(case, problem=error.message)


def _side(model: ir.Model, inputs: Callable[[ir.Model], Tensors]) -> Side:
    return Side(model, inputs(model), attention_points(model))


def _problem(reference: Side, candidate: Side) -> str:
    if not candidate.points:
        return "the candidate has no QKNormAttention nodes; convert it to the portable form"
    if len(reference.points) != len(candidate.points):
        counts = f"{len(reference.points)} and {len(candidate.points)}"
        return f"reference and candidate must have as many attentions, got {counts}"
    return ""


def _localize(
    reference: Side,
    candidate: Side,
    path: Path,
    backend: str,
    case: str,
    tolerance: Tolerance,
) -> Localization:
    exact = interpreted_values(reference.model, reference.inputs, reference.tapped, exact=True)
    native = interpreted_values(reference.model, reference.inputs, reference.tapped, exact=False)
    found = candidate_values(path, backend, candidate.inputs, candidate.tapped)
    oracle = {
        name: x.double() if x.is_floating_point() else x
        for name, x in reference.named(exact).items()
    }
    heads = {
        f"{index} {name}": count
        for index, point in enumerate(reference.points)
        for name, count in point.num_heads.items()
    }
    ours, theirs = candidate.named(found), reference.named(native)
    same_type = all(ours[name].dtype == theirs[name].dtype for name in ours)
    narrow = None if same_type else next(iter(ours.values())).dtype
    comparison = compare_outputs(
        ours,
        oracle,
        theirs if same_type else None,
        rules=Rules(tolerance, num_heads=heads, vacuous_fails=False),
        noise=NoiseEffects(lambda: _noisy(reference, narrow)),
    )
    judged = {output.name: output for output in comparison.outputs}
    layers = tuple(
        _layer(index, reference, candidate, judged) for index in range(len(reference.points))
    )
    first = next((layer for layer in layers if not layer), None)
    reasons, place = _reasons(layers, reference, candidate, exact, found)
    if first is None or first.verdict is LayerVerdict.INHERITED:
        reasons += first_deviation(
            reference.model, reference.inputs, candidate.inputs, path, backend, tolerance
        )
    return Localization(case, layers, tuple(reasons), place=place)


def _noisy(side: Side, narrow: torch.dtype | None) -> Iterator[dict[str, torch.Tensor]]:
    for seed in range(NOISE_DRAWS):
        change = noise_tap(RoundingNoise(seed, narrow))
        values = interpreted_values(side.model, side.inputs, side.tapped, exact=True, change=change)
        yield side.named(values)


def _layer(
    index: int, reference: Side, candidate: Side, judged: Mapping[str, OutputComparison]
) -> LayerResult:
    inputs = tuple(judged[f"{index} {name}"] for name in _COMPARED)
    output = judged[f"{index} output"]
    verdict = LayerVerdict.MATCHED
    if not output:
        verdict = LayerVerdict.ORIGIN if all(inputs) else LayerVerdict.INHERITED
    return LayerResult(
        index,
        str(candidate.points[index].node.name),
        reference.points[index].module,
        verdict,
        inputs,
        output,
    )


def _reasons(
    layers: Sequence[LayerResult],
    reference: Side,
    candidate: Side,
    exact: Tensors,
    found: Tensors,
) -> tuple[list[str], Place | None]:
    first = next((layer for layer in layers if not layer), None)
    if first is None:
        text = "every attention is within its budget: the error arises after the last one"
        return [text], None
    if first.verdict is LayerVerdict.INHERITED:
        wrong = [name for name, x in zip(_COMPARED, first.inputs, strict=True) if not x]
        where = f"before {_name(first)}"
        if first.index:
            where = f"between {_name(layers[first.index - 1])} and {_name(first)}"
        return [f"the error arises {where}: beyond its budget is {', '.join(wrong)}"], None
    theirs, ours = reference.through(first.index, exact), candidate.through(first.index, found)
    reasons = [f"the error arises in {_name(first)}", *explain(theirs, ours)]
    if first.output.worst is None:
        return reasons, None
    place = find_place(theirs, ours, first.output.worst)
    return [*reasons, str(place)], place


def _name(layer: LayerResult) -> str:
    return layer.node + (f" ({layer.module})" if layer.module else "")
