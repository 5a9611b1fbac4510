"""What a parity run proved, written into the manifests that speak of its candidates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from qkexport.engine.evidence import EvidencePlace, places_of
from qkexport.manifest import ParityEvidence
from qkexport.proof.candidate import ParitySettings
from qkexport.proof.results import CandidateResult, Evidence, ParityResult

_UNPROVEN: Final = {"parity": Evidence.BUILT, "onnx_parity": Evidence.CONVERTED}

Places = dict[str, tuple[EvidencePlace, ...]]


def places_of_candidates(paths: Sequence[Path]) -> Places:
    """Where the evidence on each candidate belongs, by its name; to be asked before the run."""
    return {str(path): places_of(path) for path in paths}


def record_evidence(result: ParityResult, places: Places, settings: ParitySettings) -> None:
    """Writes the outcome for each candidate that ran into its manifests, one step a manifest.

    The last run counts, also when it proves less than one before it. A candidate whose backends
    are absent keeps what its manifest says.
    """
    for name, own in places.items():
        ran = [item for item in result.candidates if item.name == name and not item.skipped]
        for place in own if ran else ():
            place.put(_evidence(result, ran, settings, _UNPROVEN[place.field]))


def _evidence(
    result: ParityResult, ran: Sequence[CandidateResult], settings: ParitySettings, least: Evidence
) -> ParityEvidence:
    if all(ran):
        tier, reason = Evidence.MATCHED, _what_matched(ran, settings)
    else:
        worst = next(item for item in ran if not item)
        did_run = all(item.ran for item in ran)
        tier = Evidence.RAN if did_run else least
        reason = f"{worst.verdict} on {worst.backend}: {_what_failed(worst)}"
    notes = dict.fromkeys(note for item in ran for note in item.notes)
    return ParityEvidence(
        tier=str(tier),
        reason="; ".join([reason, *notes]),
        backend=", ".join(item.backend for item in ran),
        reference=result.reference,
        suite=result.suite,
        seed=result.seed,
    )


def _what_matched(ran: Sequence[CandidateResult], settings: ParitySettings) -> str:
    cases = min(len(item.cases) for item in ran)
    own = {"rtol": settings.rtol, "atol": settings.atol}
    given = ", ".join(f"{name} {value:g}" for name, value in own.items() if value is not None)
    text = f"{cases} cases within {given or 'the derived tolerance'}"
    left_out = sorted(settings.allow_constant | settings.ignore_extra | settings.ignore_missing)
    return f"{text}, {', '.join(left_out)} left out" if left_out else text


def _what_failed(item: CandidateResult) -> str:
    if item.reason:
        return item.reason.splitlines()[0]
    for case in item.cases:
        if case.error:
            return f"case {case.label}: {case.error.splitlines()[0]}"
        for output in case.failures:
            return f"case {case.label}: output {output.name} is outside its tolerance"
    return f"no case tests {', '.join(item.untested) or 'anything'}"
