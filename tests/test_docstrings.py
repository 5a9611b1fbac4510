"""The examples in the docstrings of the Python API run, and print what they show."""

from __future__ import annotations

import doctest
import importlib.util
import inspect
import warnings
from pathlib import Path

import pytest
import torch

import qkexport
from qkexport.native import find_library

_NEEDS = {
    "build": "tensorrt_rtx",
    "parity": "onnxruntime",
    "assert_parity": "onnxruntime",
    "bench": "onnxruntime",
}
_NEEDS_LIBRARY = ("register_ort", "ort_library_path")
_FUNCTIONS = [name for name in qkexport.__all__ if inspect.isfunction(getattr(qkexport, name))]
_EXAMPLES = [*_FUNCTIONS, "InputSpec", "DynamicDim"]


@pytest.mark.parametrize("name", _EXAMPLES)
def test_the_example_runs(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if importlib.util.find_spec(_NEEDS.get(name, "torch")) is None:
        pytest.skip(f"{_NEEDS[name]} is not installed")
    if name in _NEEDS_LIBRARY and find_library("libqkexport_ort.so") is None:
        pytest.skip("the operator library was not built")
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    found = doctest.DocTestFinder(recurse=False).find(getattr(qkexport, name), name, globs={})
    (test,) = [test for test in found if test.examples]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # exporters about their own future
        outcome = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False)
    assert outcome.failed == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", qkexport.__all__)
def test_functions_say_what_they_take_and_return(name: str) -> None:
    value = getattr(qkexport, name)
    if not inspect.isfunction(value):
        return
    text = inspect.getdoc(value) or ""
    parameters = inspect.signature(value).parameters
    assert ("Args:" in text) is bool(parameters)
    assert all(f"{parameter}:" in text for parameter in parameters)
    assert value.__annotations__.get("return")
