"""Which input and output of a candidate is which of the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import torch

from qkexport.errors import UsageError
from qkexport.proof.reference import Reference
from qkexport.run.runner import Runner, TensorInfo, Tensors


@dataclasses.dataclass(frozen=True)
class Pairing:
    """Names of a candidate by names of the reference.

    Attributes:
        inputs: Reference input to candidate input.
        renamed: Candidate output to reference output, where they differ.
        dtypes: Type of each candidate input.
        notes: What was assumed.
    """

    inputs: Mapping[str, str]
    renamed: Mapping[str, str]
    dtypes: Mapping[str, torch.dtype]
    notes: tuple[str, ...] = ()

    def feeds(self, inputs: Tensors) -> dict[str, torch.Tensor]:
        """The reference's inputs as the candidate takes them."""
        return {
            own: inputs[name].to(self.dtypes[own])
            for name, own in self.inputs.items()
            if name in inputs
        }


def pair(reference: Reference, runner: Runner, declared: Mapping[str, str]) -> Pairing:
    """Pairs by name; where tracing made the reference's names up, by position.

    Args:
        reference: The model that is right.
        runner: The candidate.
        declared: Candidate name to reference name, of outputs or inputs, as the user gave them.

    Raises:
        UsageError: A declared name exists on neither side, or inputs cannot be paired.
    """
    _check_declared(reference, runner, declared)
    by_candidate = {info.name: info for info in runner.inputs}
    inputs = _by_name(reference.inputs, runner.inputs, declared)
    notes = []
    if inputs is None:
        inputs = _by_position(reference.inputs, runner.inputs, declared)
        notes.append("inputs paired by position")
    outputs = _by_name(reference.outputs, runner.outputs, declared)
    if not reference.has_names and not any(info.name in declared for info in runner.outputs):
        # names that tracing made up may be the same and yet say nothing: two outputs that changed
        # places would be paired by them
        zipped = _zip(reference.outputs, runner.outputs) if _as_many(reference, runner) else None
        if zipped is not None and zipped != outputs:
            note = "outputs paired by position"
            notes.append(note if outputs is None else f"{note}, not by the names of their tracing")
        outputs = zipped or outputs
    renamed = {own: name for name, own in (outputs or {}).items() if own != name}
    return Pairing(
        inputs,
        renamed if outputs is not None else dict(declared),
        {name: info.dtype for name, info in by_candidate.items()},
        tuple(notes),
    )


def _as_many(reference: Reference, runner: Runner) -> bool:
    return len(reference.outputs) == len(runner.outputs)


def _by_name(
    theirs: tuple[TensorInfo, ...], ours: tuple[TensorInfo, ...], declared: Mapping[str, str]
) -> dict[str, str] | None:
    names = {declared.get(info.name, info.name): info.name for info in ours}
    if {info.name for info in theirs} != set(names):
        return None
    return {info.name: names[info.name] for info in theirs}


def _by_position(
    theirs: tuple[TensorInfo, ...], ours: tuple[TensorInfo, ...], declared: Mapping[str, str]
) -> dict[str, str]:
    fits = len(theirs) == len(ours) and all(
        left.dtype.is_floating_point == right.dtype.is_floating_point
        and len(left.shape) == len(right.shape)
        for left, right in zip(theirs, ours, strict=True)
    )
    if not fits:
        message = (
            f"Candidate must take the reference's inputs {_names(theirs)}, got {_names(ours)}."
        )
        raise UsageError(message, hint="declare other names with --map CANDIDATE=REFERENCE.")
    return _zip(theirs, ours)


def _zip(theirs: tuple[TensorInfo, ...], ours: tuple[TensorInfo, ...]) -> dict[str, str]:
    return {left.name: right.name for left, right in zip(theirs, ours, strict=True)}


def _names(infos: tuple[TensorInfo, ...]) -> str:
    return ", ".join(info.name for info in infos)


def _check_declared(reference: Reference, runner: Runner, declared: Mapping[str, str]) -> None:
    ours = {info.name for info in (*runner.inputs, *runner.outputs)}
    theirs = {info.name for info in (*reference.inputs, *reference.outputs)}
    for candidate, name in declared.items():
        if candidate not in ours:
            message = f"--map must name a tensor of the candidate, got {candidate!r}."
            raise UsageError(message, note=f"it has {', '.join(sorted(ours))}.")
        if name not in theirs:
            message = f"--map must name a tensor of the reference, got {name!r}."
            raise UsageError(message, note=f"it has {', '.join(sorted(theirs))}.")
