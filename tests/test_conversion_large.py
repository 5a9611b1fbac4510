"""Models over 2 GB, which no single protobuf message can hold."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
import torch
from qk_norm_models import WIDTH, MaskedAttention
from torch import nn

import qkexport

ROWS = 22_500_003  # of 24 floats: 2.16 GB, zeros that take no memory until they are read


@pytest.mark.nightly
def test_a_model_over_2_gb_is_converted_and_loads_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = MaskedAttention()
    model.embed = nn.Embedding(ROWS, WIDTH, _weight=torch.zeros(ROWS, WIDTH))
    with torch.no_grad():
        model.embed.weight[-1] = torch.linspace(-1, 1, WIDTH)
    ids = torch.tensor([[0, 5, ROWS - 1]])
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    result = qkexport.convert(
        (model, (ids,)), Path("models") / "large.onnx", require_fused="all", verify=False
    )
    assert result
    data = tmp_path / "models" / "large.onnx.data"
    assert data.stat().st_size > 2**31
    assert (tmp_path / "models" / "large.onnx").stat().st_size < 1 << 20
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    onnx.checker.check_model("../models/large.onnx")
    session = ort.InferenceSession("../models/large.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"ids": ids.numpy()})
    with torch.no_grad():
        expected = model(ids)
    assert torch.allclose(torch.as_tensor(found), expected, atol=1e-5)
    data.unlink()
