"""Every fusable family of the coverage table becomes an engine in native form."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Final

import pytest
import torch
from engine_models import needs_rtx
from zoo import FAMILIES
from zoo.family import Family

import qkexport
from qkexport import BuildOptions
from qkexport.engine.verify import verify_files

pytestmark = needs_rtx

TARGETS: Final = ("sm_89", "sm_120")
FUSABLE: Final = {family.name: family for family in FAMILIES if family.fused}
QUICK: Final = ("qwen3", "timm vit", "swin v2")


def _build(family: Family, folder: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries the models come from
        sample = family.build(family.implementations[0])
        program = torch.export.export(
            sample.module, sample.args, dict(sample.kwargs), dynamic_shapes=sample.dynamic_shapes
        )
    model = folder / "model.onnx"
    assert qkexport.convert(program, model, require_fused=family.fused, verify=False)
    engine = folder / "model.engine"
    result = qkexport.build(model, engine, options=BuildOptions(targets=TARGETS))
    assert result
    manifest = verify_files(engine)
    assert (manifest.op_version, manifest.attention, manifest.targets) == (1, "native", TARGETS)


@pytest.mark.parametrize("name", QUICK)
def test_common_families_become_engines(name: str, tmp_path: Path) -> None:
    _build(FUSABLE[name], tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(set(FUSABLE) - set(QUICK)))
def test_every_other_family_becomes_an_engine(name: str, tmp_path: Path) -> None:
    _build(FUSABLE[name], tmp_path)
