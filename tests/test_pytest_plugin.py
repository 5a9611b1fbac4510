"""The fixture in somebody else's test suite: passes, fails with the report, and leaves traces."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import onnx_ir as ir
import pytest
import torch
from qk_norm_models import WIDTH, VisionAttention

import qkexport
from qkexport.load import TorchSource
from qkexport.trace import trace

SUITE = """
import torch
from qk_norm_models import VisionAttention

def model():
    torch.manual_seed(0)
    return VisionAttention(), (torch.randn(2, 7, 24),)

def test_right(assert_parity):
    module, inputs = model()
    program = torch.export.export(module.eval(), inputs)
    result = assert_parity(program, "right.onnx", backends=["ort-stock"])
    assert result.candidates[0].cases

def test_wrong(assert_parity):
    module, inputs = model()
    program = torch.export.export(module.eval(), inputs)
    assert_parity(program, "wrong.onnx", backends=["ort-stock"])
"""


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    module = VisionAttention().eval()
    source = TorchSource("vit", module, (torch.randn(2, 7, WIDTH),))
    model = trace(source, opset=24).model
    ir.save(model, tmp_path / "right.onnx")
    weight = model.graph.initializers["q_norm.weight"]
    assert weight.const_value is not None
    weight.const_value = ir.tensor(weight.const_value.numpy() * 1.01, name="q_norm.weight")
    ir.save(model, tmp_path / "wrong.onnx")
    (tmp_path / "test_mine.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\njunit_family = xunit1\n")
    return tmp_path


def test_the_fixture_judges_the_models_of_a_test(suite: Path) -> None:
    root, tests = Path(qkexport.__file__).parents[1], Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "qkexport.pytest_plugin",
         "--basetemp", str(suite / "temp"), "--junitxml", "r.xml", "test_mine.py"],
        cwd=suite,
        env={"PYTHONPATH": f"{root}:{tests}", "PATH": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "MISMATCHED wrong.onnx on ort-stock" in done.stdout
    assert "worst at [" in done.stdout
    assert "Traceback" not in done.stdout
    assert list((suite / "temp").rglob("parity-failures/*.pt"))
    verdicts = {
        (prop.get("name"), prop.get("value")) for prop in ET.parse(suite / "r.xml").iter("property")
    }
    assert ("parity right.onnx on ort-stock", "MATCHED") in verdicts
    assert ("parity wrong.onnx on ort-stock", "MISMATCHED") in verdicts


def test_the_plugin_loads_no_framework() -> None:
    code = "import sys, qkexport.pytest_plugin; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_assertion_returns_the_result_or_raises_the_report(suite: Path) -> None:
    torch.manual_seed(0)
    program = torch.export.export(VisionAttention().eval(), (torch.randn(2, 7, WIDTH),))
    result = qkexport.assert_parity(program, suite / "right.onnx", backends=["ort-stock"])
    assert result
    with pytest.raises(AssertionError, match="rows exceed their limit"):
        qkexport.assert_parity(program, suite / "wrong.onnx", backends=["ort-stock"])
