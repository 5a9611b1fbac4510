"""Proves that a comparison would have noticed: mutants of the model must not pass.

Each mutant is the model with one deliberate error in one attention. A comparison that lets one
through would let the same error of an exporter through.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import onnx_ir as ir
import torch

from qkexport.errors import UnsupportedModelError, UsageError
from qkexport.export.node import attention_nodes, spell_by_position
from qkexport.interpret import Interpreter
from qkexport.names import suggest
from qkexport.progress import log_share, part
from qkexport.proof.candidate import Candidate, ParitySettings
from qkexport.proof.cases import Suite, suite_cases
from qkexport.proof.environment import environment
from qkexport.proof.fused_graph import fused_graph
from qkexport.proof.mutants import MUTANTS, Mutant, Site
from qkexport.proof.open import open_source
from qkexport.proof.pairing import pair
from qkexport.proof.reference import open_reference
from qkexport.proof.results import CandidateResult
from qkexport.proof.session import Run
from qkexport.run.onnx_torch_runner import OnnxTorchRunner
from qkexport.run.torch_runner import TORCH

if TYPE_CHECKING:
    from qkexport.input_options import DynamicDim, InputSpec

_LOG: Final = logging.getLogger(__name__)
DOCUMENT_FORMAT: Final = "qkexport-self-test-1"


@dataclasses.dataclass(frozen=True)
class MutantResult:
    """What became of one mutant.

    Attributes:
        mutant: Which error was made.
        node: The attention it was made in; empty if it fits none.
        killed: A case failed because of it.
        by: Case and output that noticed, and how.
        usage: Error over allowance at its worst.
        equivalent: It survived, and in float64 it computes what the model computes in every case,
            to the last digits: an epsilon that is never reached, say. There is nothing to notice.
        crashed: It did not run. That is noticed, but not by comparing: it counts as a survivor.
    """

    mutant: Mutant
    node: str = ""
    killed: bool = False
    by: str = ""
    usage: float = 0.0
    equivalent: bool = False
    crashed: bool = False

    @property
    def applies(self) -> bool:
        """It is an error that can be noticed."""
        return bool(self.node) and not self.equivalent

    @property
    def verdict(self) -> str:
        """`killed`, `survived`, `crashed`, `equivalent` or `does not apply`."""
        if not self.node:
            return "does not apply"
        if self.equivalent or self.crashed:
            return "equivalent" if self.equivalent else "crashed"
        return "killed" if self.killed else "survived"

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON documents."""
        return {
            "name": self.mutant.name,
            "description": self.mutant.description,
            "node": self.node,
            "verdict": self.verdict,
            "by": self.by,
        }


@dataclasses.dataclass(frozen=True)
class SelfTestResult:
    """All mutants; true if the model itself passes, some mutant fits, and all that fit are killed.

    Attributes:
        model: As the user named it.
        control: The model without an error, which must pass.
        mutants: In the order of their definition.
        suite: That was tried.
        seed: Of the suite.
        environment: Versions and machine.
        seconds: All of it took.
    """

    model: str
    control: CandidateResult
    mutants: tuple[MutantResult, ...]
    suite: str = Suite.FULL
    seed: int = 0
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0

    def __bool__(self) -> bool:
        return bool(self.control) and bool(self.applied) and not self.survivors

    @property
    def applied(self) -> tuple[MutantResult, ...]:
        return tuple(result for result in self.mutants if result.applies)

    @property
    def survivors(self) -> tuple[MutantResult, ...]:
        return tuple(result for result in self.applied if not result.killed)

    @property
    def kill_rate(self) -> float:
        """Share of the mutants that fit the model."""
        applied = len(self.applied)
        return (applied - len(self.survivors)) / applied if applied else 0.0

    def to_dict(self) -> dict[str, Any]:
        """The JSON document; its schema is published as `report/self_test.schema.json`."""
        return {
            "format": DOCUMENT_FORMAT,
            "passed": bool(self),
            "model": self.model,
            "suite": str(self.suite),
            "seed": self.seed,
            "control": str(self.control.verdict),
            "kill_rate": self.kill_rate,
            "applied": len(self.applied),
            "survivors": [result.mutant.name for result in self.survivors],
            "mutants": [result.to_dict() for result in self.mutants],
            "environment": dict(self.environment),
            "seconds": round(self.seconds, 6),
        }


def self_test(
    model: Any,
    *,
    names: Sequence[str] = (),
    inputs: Mapping[str, torch.Tensor | InputSpec] | None = None,
    dynamic: Sequence[DynamicDim] = (),
    suite: str = Suite.FULL,
    seed: int = 0,
    every_node: bool = False,
    allow_pickle: bool = False,
) -> SelfTestResult:
    """Compares mutants of a model with the model.

    Args:
        model: What `load_source` takes.
        names: Mutants to try; empty: all.
        inputs: As for `parity`, to trace a PyTorch module with.
        dynamic: Likewise.
        suite: Cases are tried in its order until one fails.
        seed: Of the suite.
        every_node: Try each mutant in every attention instead of one.
        allow_pickle: Unpickle the model; this can run any code.

    Raises:
        UsageError: A mutant is unknown, or the model cannot be used as a reference.
        UnsupportedModelError: The model has no attention with QK norm to make errors in.
    """
    start = time.perf_counter()
    wanted = _mutants(names)
    source = open_source(model, inputs or {}, dynamic, (), allow_pickle)
    reference = open_reference(source)
    graph = fused_graph(source)
    places = [str(node.name) for node in attention_nodes(graph.graph)]
    if not places:
        message = f"Model {source.name} must have an attention with QK norm, got none."
        hint = "qkexport inspect lists its attentions and why they are not fused."
        raise UnsupportedModelError(message, hint=hint)
    cases = suite_cases(reference, Suite(suite), seed)
    with Run(reference, cases, ParitySettings()) as run:
        control = run.candidate(_candidate("control", graph), keep=True)
        results = []
        for turn, mutant in enumerate(wanted):
            order = _order(places, turn, every_node)
            with part(turn, len(wanted)):
                results.append(_try(run, graph, mutant, order, every_node))
    return SelfTestResult(
        source.name,
        control,
        tuple(_flat(results)),
        suite,
        seed,
        environment(),
        time.perf_counter() - start,
    )


def _mutants(names: Sequence[str]) -> list[Mutant]:
    for name in names:
        if name not in MUTANTS:
            message = f"Mutant must be a known one, got {name!r}."
            note = f"accepted: {', '.join(MUTANTS)}."
            raise UsageError(message, note=note, hint=suggest(name, MUTANTS))
    return [MUTANTS[name] for name in names or MUTANTS]


def _order(places: Sequence[str], turn: int, every_node: bool) -> Sequence[str]:
    """Attentions to try a mutant in: by turns, so that all are tried by some mutant."""
    start = 0 if every_node else turn % len(places)
    return [*places[start:], *places[:start]]


def _flat(results: Iterable[Sequence[MutantResult]]) -> Iterable[MutantResult]:
    return (result for group in results for result in group)


def _try(
    run: Run, graph: ir.Model, mutant: Mutant, places: Sequence[str], every_node: bool
) -> list[MutantResult]:
    results = []
    for place in places:
        changed = _mutated(graph, mutant, place)
        if changed is None:
            continue
        log_share(_LOG, 0.0, "self-test: %s in %s", mutant.name, place)
        candidate = _candidate(f"{mutant.name} in {place}", changed)
        result = _judged(mutant, place, run.candidate(candidate, keep=True, stop=True))
        decided = result.killed or result.crashed or mutant.rounding
        if not decided and _same_exactly(run, graph, changed):
            result = dataclasses.replace(result, equivalent=True)
        results.append(result)
        if not every_node:
            break
    return results or [MutantResult(mutant)]


def _mutated(graph: ir.Model, mutant: Mutant, place: str) -> ir.Model | None:
    """A copy of the graph with the error in one attention, or None where it is not one."""
    model = graph.clone()
    node = next(node for node in attention_nodes(model.graph) if node.name == place)
    spell_by_position(node)
    return model if mutant.edit(Site(model, node)) else None


def _candidate(name: str, model: ir.Model) -> Candidate:
    return Candidate(name, TORCH, lambda: OnnxTorchRunner(model))


# Rounding of float64 through a few hundred operators; float32 is nine digits away.
_SAME: Final = 1e-12


def _same_exactly(run: Run, graph: ir.Model, changed: ir.Model) -> bool:
    """True when both graphs give the same answers in float64 in every case."""
    pairing = pair(run.reference, OnnxTorchRunner(graph), {})
    left, right = Interpreter(graph, exact=True), Interpreter(changed, exact=True)
    for case in run.prepared():
        feeds = pairing.feeds(case.inputs)
        ours, theirs = left.run(feeds), right.run(feeds)
        for x, y in zip(ours.values(), theirs.values(), strict=True):
            if x.is_floating_point() and x.numel():
                scale = float(x.nan_to_num().abs().max())
                if not torch.allclose(x, y, rtol=0, atol=_SAME * scale, equal_nan=True):
                    return False
            elif not torch.equal(x, y):
                return False
    return True


def _judged(mutant: Mutant, place: str, result: CandidateResult) -> MutantResult:
    for case in result.cases:
        for output in case.failures:
            by = f"{case.label}: {output.name} {output.status}"
            return MutantResult(mutant, place, True, by, output.usage)
        if case.error:
            return MutantResult(mutant, place, by=f"{case.label}: {case.error}", crashed=True)
    worst = result.worst
    return MutantResult(mutant, place, usage=worst[1].usage if worst else 0.0, by=result.reason)
