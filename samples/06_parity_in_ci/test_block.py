"""The same proof in a project's own tests; `assert_parity` comes with qkexport."""

from collections.abc import Callable
from pathlib import Path

from qkexport import ParityResult

MODEL = Path(__file__).parent / "model.onnx"


def test_the_onnx_file_is_the_model(assert_parity: Callable[..., ParityResult]) -> None:
    result = assert_parity("block:vision", MODEL, backends=["ort-stock"], suite="full")
    assert len(result.candidates[0].cases) > 10
