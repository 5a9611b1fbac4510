"""Products block by block equal products at once, and never widen a whole weight."""

from __future__ import annotations

import pytest
import torch

from qkexport.interpret import blockwise
from qkexport.interpret.blockwise import wide_linear, wide_matmul

SHAPES = ((1,), (59,), (3, 1), (2, 7), (0,))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockwise, "BLOCK_ELEMENTS", 64)


@pytest.mark.parametrize("lead", SHAPES)
@pytest.mark.parametrize("rows", [1, 59, 97])
def test_a_linear_layer_is_what_it_is_at_once(lead: tuple[int, ...], rows: int) -> None:
    x, bias = torch.randn(*lead, 11, dtype=torch.float64), torch.randn(rows, dtype=torch.float64)
    weight = torch.randn(rows, 11)
    widened: list[int] = []

    def widen(block: torch.Tensor) -> torch.Tensor:
        widened.append(block.numel())
        return block.double()

    found = wide_linear(x, weight, bias, widen)
    torch.testing.assert_close(found, torch.nn.functional.linear(x, weight.double(), bias))
    assert max(widened) <= 64
    assert sum(widened) == weight.numel()


@pytest.mark.parametrize("columns", [1, 59, 97])
def test_a_product_is_what_it_is_at_once(columns: int) -> None:
    x, weight = torch.randn(2, 7, 11, dtype=torch.float64), torch.randn(11, columns)
    found = wide_matmul(x, weight, torch.Tensor.double)
    torch.testing.assert_close(found, x @ weight.double())


def test_a_row_wider_than_a_block_is_one_block() -> None:
    x, weight = torch.randn(3, 200, dtype=torch.float64), torch.randn(5, 200)
    torch.testing.assert_close(
        wide_linear(x, weight, None, torch.Tensor.double), x @ weight.T.double()
    )
