"""Factories are found, called and checked, with a message for each way that fails."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from qkexport.errors import LoadError
from qkexport.factory import call_factory, is_factory_name
from qkexport.load import TorchSource, load_source

_CODE = """
import torch
from torch import nn

module = nn.Linear(3, 2)
ready = nn.Linear(3, 2)
number = 3

def alone():
    return module

def with_args():
    return module, (torch.ones(1, 3),)

def with_tensor():
    return module, torch.ones(1, 3)

def with_kwargs():
    return module, (), {"input": torch.ones(1, 3)}

def with_shapes():
    return module, (torch.ones(2, 3),), {}, {"input": {0: torch.export.Dim("n")}}

def five():
    return module, (), {}, None, None

def no_model():
    return 3

def listed():
    return module, (), [1]

def fails():
    raise RuntimeError("weights are missing")

class Built(nn.Linear):
    def __init__(self):
        super().__init__(3, 2)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    name = f"factories_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(_CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.mark.parametrize(
    ("factory", "args", "kwargs", "shapes"),
    [
        ("alone", 0, [], False),
        ("with_args", 1, [], False),
        ("with_tensor", 1, [], False),
        ("with_kwargs", 0, ["input"], False),
        ("with_shapes", 1, [], True),
        ("Built", 0, [], False),
        ("ready", 0, [], False),
    ],
)
def test_every_answer_of_a_factory_is_understood(
    home: str, factory: str, args: int, kwargs: list[str], shapes: bool
) -> None:
    module, given_args, given_kwargs, given_shapes = call_factory(f"{home}:{factory}")
    assert isinstance(module, nn.Linear)
    assert len(given_args) == args
    assert list(given_kwargs) == kwargs
    assert (given_shapes is not None) is shapes


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("alonne", r"must exist, got no 'alonne'"),
        ("number", r"must be callable, got int"),
        ("five", r"must return a model, got \(Linear, tuple, dict, NoneType, NoneType\)"),
        ("no_model", r"must return a model, got \(int\)"),
        ("listed", r"must return kwargs as a mapping, got list"),
        ("fails", r"must return a model, got RuntimeError: weights are missing"),
    ],
)
def test_a_wrong_factory_is_refused_by_what_is_wrong(home: str, factory: str, message: str) -> None:
    with pytest.raises(LoadError, match=message):
        call_factory(f"{home}:{factory}")


def test_a_typo_is_answered_with_the_name_that_exists(home: str) -> None:
    with pytest.raises(LoadError) as caught:
        call_factory(f"{home}:with_arg")
    assert caught.value.hint == "did you mean 'with_args'?"


def test_a_module_that_does_not_exist_is_named() -> None:
    with pytest.raises(LoadError, match="must name a module, got none called 'no_such_module'"):
        call_factory("no_such_module:factory")


def test_a_module_that_misses_an_import_of_its_own_says_so(tmp_path: Path, home: str) -> None:
    (tmp_path / f"{home}_broken.py").write_text("import no_such_dependency")
    with pytest.raises(LoadError, match=r"got ModuleNotFoundError: .*no_such_dependency"):
        call_factory(f"{home}_broken:factory")


def test_a_module_with_a_syntax_error_says_so(tmp_path: Path, home: str) -> None:
    (tmp_path / f"{home}_wrong.py").write_text("def (")
    with pytest.raises(LoadError, match="must be importable, got SyntaxError"):
        call_factory(f"{home}_wrong:factory")


def test_the_working_directory_is_importable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "factory_in_the_folder.py").write_text(_CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", ["elsewhere", *__import__("sys").path])
    source = load_source("factory_in_the_folder:with_args")
    assert isinstance(source, TorchSource)
    assert torch.equal(source.args[0], torch.ones(1, 3))


@pytest.mark.parametrize("text", ["a:b", "a.b.c:d_e", "a:B.c"])
def test_factory_names_are_recognized(text: str) -> None:
    assert is_factory_name(text)


@pytest.mark.parametrize("text", ["a.b", "a:", ":b", "a/b:c", "model.pt", "1a:b", "a:b:c"])
def test_other_text_is_no_factory_name(text: str) -> None:
    assert not is_factory_name(text)
