"""A parity result with one of everything, made without running a model."""

from __future__ import annotations

import torch

from qkexport.compare import Rules, compare_outputs
from qkexport.proof.results import CandidateResult, CaseResult, PairDifference, ParityResult


def eventful_result() -> ParityResult:
    """Matched, mismatched, failed and skipped candidates; names that need escaping."""
    torch.manual_seed(0)
    oracle = {
        "logits": torch.randn(2, 5, 31, dtype=torch.float64),
        "<y> & 'z'": torch.randn(2, 3, 4, 8, dtype=torch.float64),
    }
    good = {name: x.float() for name, x in oracle.items()}
    rules = Rules(logits=frozenset(["logits"]))
    matched = compare_outputs(good, oracle, good, rules=rules)
    bad = {name: x.clone() for name, x in good.items()}
    bad["<y> & 'z'"][1, 2, 3, 4] = torch.inf
    bad["logits"][0, 1, 2] += 9
    mismatched = compare_outputs(bad, oracle, good, rules=rules)
    shapes: dict[str, tuple[int, ...]] = {"ids": (2, 5)}

    def case(label: str, **values: object) -> CaseResult:
        return CaseResult(label, shapes, 11, **values)  # type: ignore[arg-type]

    return ParityResult(
        reference="model<1>.pt2",
        suite="quick",
        seed=3,
        candidates=(
            CandidateResult("a.onnx", "ort-stock", (case("odd normal", comparison=matched),)),
            CandidateResult(
                "b|b.onnx",
                "ort-stock",
                (
                    case("odd normal", comparison=mismatched, replay="failures/b.pt"),
                    case("one <normal>", comparison=None, error="Node `n` must run, got \x00."),
                ),
                untested=("aux",),
                notes=("bf16 emulated",),
            ),
            CandidateResult("c.onnx", "ort", reason="c.onnx must load, got nothing.\nHint: no."),
            CandidateResult("d.onnx", "plugin", reason="no <host>\nNote: no", skipped=True),
        ),
        skipped_cases=("largest normal: too long",),
        pairs=(PairDifference("a.onnx [ort-stock]", "b.onnx [ort-stock]", "logits", 9.0),),
        environment={"torch": "2.13.0", "processor": "x & y"},
        seconds={"oracle": 1.25, "compare": 0.5},
    )
