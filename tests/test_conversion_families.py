"""Real families from PyTorch module to checked file; all of them, all ways, in the nightly run."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from zoo import FAMILIES
from zoo.family import Family

import qkexport
from qkexport.load import TorchSource

_OPSET = 24
_QUICK = {
    ("qwen3", "sdpa"),
    ("qwen3", "eager"),
    ("qwen3 float16", "sdpa"),
    ("qwen3 static", "sdpa"),
    ("timm vit", "sdpa"),
    ("llama 3.2 vision", "sdpa"),
    ("henry 2020", "sdpa"),
    ("enable_gqa", "sdpa"),
}


def _cases() -> list[object]:
    return [
        pytest.param(
            family,
            implementation,
            opset,
            id=f"{family.name}-{implementation}-{opset}",
            marks=()
            if opset == _OPSET and (family.name, implementation) in _QUICK
            else pytest.mark.nightly,
        )
        for family in FAMILIES
        for implementation in family.implementations
        for opset in (family.opsets if implementation == "sdpa" else (_OPSET,))
        # the exporter's own rotary node at opset 23 does not run with a batch; fused ones do
        if not (opset == 23 and family.skipped)
    ]


@pytest.mark.parametrize(("family", "implementation", "opset"), _cases())
def test_a_family_is_fused_and_computes_what_pytorch_computes(
    family: Family, implementation: str, opset: int, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries the models come from
        sample = family.build(implementation)
        source = TorchSource(
            family.name, sample.module.eval(), sample.args, sample.kwargs, sample.dynamic_shapes
        )
        result = qkexport.convert(source, tmp_path / "m.onnx", opset=opset)
    assert result, result.to_dict()["verified"]
    assert result.fused == family.fused, result.to_dict()["attentions"]
    assert result.found == family.fused + len(family.skipped)
    assert result.verification is not None
    if all(p.dtype is torch.float32 for p in sample.module.parameters()):
        for case in result.verification.result.cases:
            for output in case.outputs:
                # some models lose more than that by themselves, in their rotary angles
                assert output.max_abs_error < max(1e-5, 2 * (output.baseline_error or 0))


def test_the_quick_run_names_families_that_exist() -> None:
    known = {(f.name, implementation) for f in FAMILIES for implementation in f.implementations}
    assert known >= _QUICK
