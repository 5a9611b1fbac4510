"""What is kept in files comes back as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from qkexport.proof.spool import Spool


@pytest.fixture
def spool() -> Iterator[Spool]:
    spool = Spool()
    yield spool
    spool.close()


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool],
)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (7, 59), (2, 3, 97)])
def test_tensor_comes_back(spool: Spool, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = (10 * torch.randn(shape)).to(dtype)
    spool.write("key", {"x": x})
    back = spool.read("key")["x"]
    assert back.dtype == dtype
    assert back.shape == x.shape
    assert torch.equal(back, x)


def test_values_that_are_not_finite_keep_their_bits(spool: Spool) -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), -0.0])
    spool.write("key", {"x": x})
    assert torch.equal(spool.read("key")["x"].view(torch.int32), x.view(torch.int32))


def test_view_is_stored_as_it_looks(spool: Spool) -> None:
    x = torch.arange(12.0).reshape(3, 4).T
    spool.write("key", {"x": x, "row": x[1]})
    back = spool.read("key")
    assert torch.equal(back["x"], x)
    assert torch.equal(back["row"], x[1])


def test_writing_into_what_was_read_leaves_the_file_alone(spool: Spool) -> None:
    spool.write("key", {"x": torch.ones(5)})
    spool.read("key")["x"].zero_()
    assert torch.equal(spool.read("key")["x"], torch.ones(5))


def test_keys_are_apart(spool: Spool) -> None:
    spool.write("a", {"x": torch.ones(2)})
    spool.write("b", {"x": torch.zeros(2)})
    assert "a" in spool
    assert "c" not in spool
    assert spool.read("a")["x"].sum() == 2
