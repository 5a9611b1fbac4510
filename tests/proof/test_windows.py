"""Windows wider than what was tried are told, and the full suite goes past them."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch

from qkexport.conversion import convert
from qkexport.domain import InputDomain, ModelDomain, SizeRange
from qkexport.input_options import DynamicDim
from qkexport.nn import QKNormAttention
from qkexport.proof.parity import parity
from qkexport.proof.results import Verdict
from qkexport.proof.windows import unreached, windows_of

WINDOW = 520  # beyond the 512 tokens that the full suite tries of any model


@pytest.fixture(scope="module")
def source() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    torch.manual_seed(0)
    module = QKNormAttention(8, num_heads=1, causal="upper_left", window_left=WINDOW)
    return module.eval(), (torch.randn(1, 4, 8),)


@pytest.fixture(scope="module")
def with_window(source: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("windows") / "attention.onnx"
    axes = [DynamicDim("query", 1, "s")]
    assert convert(source, path, form="fused", dynamic=axes, verify=False)
    return path


@pytest.fixture
def without_window(with_window: Path, tmp_path: Path) -> Path:
    model = onnx.load(with_window)
    (node,) = (node for node in model.graph.node if node.op_type == "QKNormAttention")
    (window,) = (item for item in node.attribute if item.name == "window_left")
    window.i = -1
    path = tmp_path / "lost.onnx"
    onnx.save(model, path)
    return path


def test_the_quick_suite_says_that_it_does_not_reach_a_window(
    source: object, with_window: Path
) -> None:
    (found,) = parity(source, [with_window], suite="quick").candidates
    assert found.verdict is Verdict.MATCHED
    (note,) = found.notes
    assert "windows of 520 tokens hide nothing" in note
    assert "--inputs of 522 tokens" in note


def test_the_full_suite_reaches_it(source: object, with_window: Path) -> None:
    (found,) = parity(source, [with_window], suite="full").candidates
    assert found.verdict is Verdict.MATCHED
    assert not found.notes
    assert max(case.shapes["query"][1] for case in found.cases) == WINDOW + 2


def test_the_full_suite_finds_that_one_of_two_lost_it(
    source: object, with_window: Path, without_window: Path
) -> None:
    right, wrong = parity(source, [with_window, without_window], suite="full").candidates
    assert right.verdict is Verdict.MATCHED
    assert wrong.verdict is Verdict.MISMATCHED


def test_windows_are_read_from_models_only(with_window: Path, tmp_path: Path) -> None:
    assert windows_of(with_window) == {WINDOW}
    for name in ("engine.engine", "broken.onnx"):
        path = tmp_path / name
        path.write_bytes(b"\xff\xff")
        assert not windows_of(path)


TOKENS = InputDomain("ids", "int64", ("b", "s"))
FEATURES = InputDomain("x", "float32", ("b", "s", 4096))
HEADS = InputDomain("q", "float32", ("b", 2, "s", 128))
CACHE = InputDomain("past", "float32", ("b", 2, "p", 8))


def _domain(*inputs: InputDomain, longest: int | None = None) -> ModelDomain:
    symbols = {name for item in inputs for name in item.symbols}
    return ModelDomain(inputs, dict.fromkeys(symbols, SizeRange(1, longest)))


@pytest.mark.parametrize("item", [TOKENS, FEATURES])
@pytest.mark.parametrize(("length", "told"), [(5, True), (6, False), (7, False)])
def test_a_window_hides_the_first_token_from_the_one_after_the_next(
    item: InputDomain, length: int, *, told: bool
) -> None:
    # Query 5 of 6 tokens, the last, is the first that a window of 4 keeps from key 0.
    shapes = {item.name: (9, length, 4096)[: len(item.shape)]}
    assert bool(unreached([4], _domain(item), [shapes])) is told


def test_a_cache_adds_its_tokens_to_the_new_ones() -> None:
    domain = _domain(TOKENS, CACHE)
    shapes = {"ids": (1, 3), "past": (1, 2, 90, 8)}
    assert not unreached([90], domain, [shapes])
    assert unreached([110], domain, [shapes])


def test_neither_heads_nor_channels_are_tokens() -> None:
    assert unreached([4], _domain(HEADS), [{"q": (1, 2, 3, 128)}])
    assert not unreached([4], _domain(HEADS), [{"q": (1, 2, 6, 128)}])


def test_the_columns_of_a_mask_are_tokens() -> None:
    mask = InputDomain("mask", "float32", ("b", 1, 1, "t"))
    assert not unreached([4], _domain(mask), [{"mask": (1, 1, 1, 6)}])


def test_what_no_legal_length_reaches_needs_no_test() -> None:
    shapes = [{"ids": (1, 16)}]
    assert unreached([62], _domain(TOKENS, longest=64), shapes)
    assert not unreached([63], _domain(TOKENS, longest=64), shapes)


def test_nothing_is_told_of_models_without_windows() -> None:
    assert not unreached([], _domain(TOKENS), [{"ids": (1, 1)}])
