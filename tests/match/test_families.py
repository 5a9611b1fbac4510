"""Every family of the zoo: how many attentions fuse, with which spec, and that nothing changed."""

from __future__ import annotations

import warnings

import onnx_ir as ir
import pytest
import torch
from fused_model import FusedModel, fuse
from zoo import FAMILIES
from zoo.export import export_model, export_program, resized, serves_once, worst_error
from zoo.family import Family, Sample

# One opset and one implementation a family in the quick run, going around; all at night.
_QUICK = [
    (family, family.implementations[i // 3 % len(family.implementations)],
     (family.opsets[i % len(family.opsets)],))
    for i, family in enumerate(family for family in FAMILIES if family.quick)
]  # fmt: skip
_FULL = [(family, how, family.opsets) for family in FAMILIES for how in family.implementations]
_OTHER_SIZES = ({"batch": -1, "seqlen": 4, "tokens": 4}, {"batch": 2, "text": 2, "keys": 3})


def _ids(row: tuple[Family, str, tuple[int, ...]]) -> str:
    family, implementation, opsets = row
    return "-".join([family.name.replace(" ", "_"), implementation, *map(str, opsets)])


@pytest.mark.parametrize("row", _QUICK, ids=_ids)
def test_family_fuses_and_still_computes_what_pytorch_computes(
    row: tuple[Family, str, tuple[int, ...]],
) -> None:
    _check(*row)


@pytest.mark.nightly
@pytest.mark.parametrize("row", _FULL, ids=_ids)
def test_family_fuses_at_every_opset(row: tuple[Family, str, tuple[int, ...]]) -> None:
    _check(*row)


def _check(family: Family, implementation: str, opsets: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other people's models say about themselves
        sample = family.build(implementation)
    program = export_program(sample)
    for opset in opsets:
        if opset != opsets[0] and serves_once(program):
            program = export_program(sample)
        model = export_model(program, opset)
        fused = fuse(model)
        _check_report(family, fused)
        _check_values(family, fused, sample)


def _check_report(family: Family, fused: FusedModel) -> None:
    report = fused.report
    reasons = [miss.reason for miss in report.near_misses]
    assert report.fused == family.fused, reasons
    assert report.found == family.fused + len(family.skipped), reasons
    for part, reason in zip(family.skipped, reasons, strict=True):
        assert part in reason
    for match in report.matches:
        for field, expected in family.expected.items():
            actual = getattr(match.spec, field)
            close = pytest.approx(expected, rel=1e-6) if isinstance(expected, float) else expected
            assert actual == close, f"{match.name}: {field}"
    if family.unmasked:
        assert not any("attn_mask" in match.inputs for match in report.matches)
    nodes = [node for node in fused.model.graph if node.op_type == "QKNormAttention"]
    assert len(nodes) == family.fused
    assert all(_typed(value) for node in nodes for value in node.outputs)


def _typed(value: ir.Value) -> bool:
    return value.dtype is not None and value.shape is not None


def _check_values(family: Family, fused: FusedModel, sample: Sample) -> None:
    half = any(p.dtype is torch.float16 for p in sample.module.parameters())
    tolerance = 2e-3 if half else 1e-5
    assert worst_error(fused, sample) < tolerance
    for change in _OTHER_SIZES:
        assert worst_error(fused, resized(sample, change)) < tolerance
