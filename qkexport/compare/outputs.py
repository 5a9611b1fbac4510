"""Pairs the outputs of a candidate with those of the reference, and judges each pair."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from qkexport.compare.expectation import Expectation
from qkexport.compare.judge import judge
from qkexport.compare.noise import NoiseDraws, NoiseEffects, Tensors
from qkexport.compare.results import Comparison, OutputComparison, Status
from qkexport.compare.tolerance import BELIEVED_USAGE, FIRST_NOISE_DRAWS, Tolerance

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class Rules:
    """How outputs are paired and judged; the defaults excuse nothing.

    Attributes:
        tolerance: Derived or given.
        renamed: Candidate name to reference name, as the user declared them.
        ignored_extra: Candidate outputs that the reference is known not to have.
        ignored_missing: Reference outputs that the candidate is known not to have.
        may_be_vacuous: Reference outputs that may be empty, constant or nowhere finite.
        logits: Outputs whose argmax is compared.
        num_heads: Outputs whose last axis holds that many heads side by side.
        vacuous_fails: See `judge`; `may_be_vacuous` names exceptions.
    """

    tolerance: Tolerance = dataclasses.field(default_factory=Tolerance)
    renamed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    ignored_extra: frozenset[str] = frozenset()
    ignored_missing: frozenset[str] = frozenset()
    may_be_vacuous: frozenset[str] = frozenset()
    logits: frozenset[str] = frozenset()
    num_heads: Mapping[str, int] = dataclasses.field(default_factory=dict)
    vacuous_fails: bool = True


def compare_outputs(
    candidate: Tensors,
    oracle: Tensors,
    baseline: Tensors | None = None,
    *,
    rules: Rules | None = None,
    noise: NoiseDraws | NoiseEffects | None = None,
) -> Comparison:
    """Compares everything a candidate returned with the oracle.

    Args:
        candidate: Outputs by name.
        oracle: Exact outputs by name: float64, or integers.
        baseline: PyTorch's outputs in the candidate's type, by the oracle's names; None leaves
            only the floor of the tolerance.
        rules: Names and tolerance.
        noise: Called only if a value exceeds what is allowed without it: evaluations of the
            oracle under rounding noise, which tell a mismatch from an ill-conditioned row. Give
            `NoiseEffects` to measure once for several candidates.

    Returns:
        One verdict an output, those of the reference first and in its order; true if all pass.
    """
    rules = rules or Rules()
    named = {rules.renamed.get(name, name): value for name, value in candidate.items()}
    results = [_paired(name, named, oracle, baseline, rules) for name in oracle]
    results += [_extra(name, oracle) for name in named if name not in oracle]
    kept = [
        result
        for result in results
        if not (result.status is Status.MISSING and result.name in rules.ignored_missing)
        and not (result.status is Status.EXTRA and result.name in rules.ignored_extra)
    ]
    if noise is not None and not rules.tolerance.given:
        effects = noise if isinstance(noise, NoiseEffects) else NoiseEffects(noise)
        kept = _with_noise(kept, named, oracle, baseline, rules, effects)
    return Comparison(tuple(kept))


def _paired(
    name: str, named: Tensors, oracle: Tensors, baseline: Tensors | None, rules: Rules
) -> OutputComparison:
    if name not in named:
        return _missing(name, [other for other in named if other not in oracle])
    return judge(
        name,
        named[name],
        _expectation(name, oracle, baseline, rules),
        rules.tolerance,
        vacuous_fails=rules.vacuous_fails and name not in rules.may_be_vacuous,
    )


def _expectation(name: str, oracle: Tensors, baseline: Tensors | None, rules: Rules) -> Expectation:
    own = None if baseline is None else baseline.get(name)
    if own is not None and own.shape != oracle[name].shape:
        own = None
    return Expectation(
        oracle[name],
        own,
        num_heads=rules.num_heads.get(name),
        logits=name in rules.logits,
    )


def _missing(name: str, unpaired: list[str]) -> OutputComparison:
    detail = "the candidate has no output of this name"
    if unpaired:
        close = difflib.get_close_matches(name, unpaired, n=1, cutoff=0.0) or unpaired
        detail += f"; if it was renamed, declare it: --map {close[0]}={name}"
    return OutputComparison(name, Status.MISSING, detail)


def _extra(name: str, oracle: Tensors) -> OutputComparison:
    detail = f"the reference has no output of this name, only {', '.join(oracle)}"
    return OutputComparison(name, Status.EXTRA, detail)


def _with_noise(
    results: list[OutputComparison],
    named: Tensors,
    oracle: Tensors,
    baseline: Tensors | None,
    rules: Rules,
    noise: NoiseEffects,
) -> list[OutputComparison]:
    """Judges once more, knowing how rounding is amplified, what failed by its values alone.

    A few draws of noise decide on what is well within its limit then, all of them on the rest.
    """
    for draws in (FIRST_NOISE_DRAWS, None):
        doubtful = [result.name for result in results if _is_doubtful(result, oracle)]
        if not doubtful:
            break
        effects = noise.rows(doubtful, oracle, rules.num_heads, draws)
        results = [
            _judged_with(effects[result.name], result.name, named, oracle, baseline, rules)
            if result.name in effects
            else result
            for result in results
        ]
    return results


def _is_doubtful(result: OutputComparison, oracle: Tensors) -> bool:
    """True for values beyond their limit, or within one that few draws have widened only just."""
    if result.name not in oracle or not oracle[result.name].is_floating_point():
        return False
    widened = result.noise_measured and result.usage > BELIEVED_USAGE
    return result.status is Status.MISMATCHED or (result.status.passed and widened)


def _judged_with(
    effect: torch.Tensor,
    name: str,
    named: Tensors,
    oracle: Tensors,
    baseline: Tensors | None,
    rules: Rules,
) -> OutputComparison:
    expected = _expectation(name, oracle, baseline, rules)
    return judge(
        name,
        named[name],
        dataclasses.replace(expected, noise=effect),
        rules.tolerance,
        vacuous_fails=False,
    )
