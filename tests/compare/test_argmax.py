"""Agreement of the largest logit, counted row by row whichever way it is found."""

from __future__ import annotations

import torch

from qkexport.compare.argmax import argmax_agreement


def test_agreement_is_what_looking_at_every_row_gives() -> None:
    torch.manual_seed(0)
    oracle = torch.randn(7, 59, 11, dtype=torch.float64)
    for noise in (0.0, 1e-6, 0.1, 2.0):
        candidate = (oracle + noise * torch.randn(oracle.shape)).float()
        found = argmax_agreement(
            candidate,
            oracle,
            (candidate.double() - oracle).abs().amax(dim=-1).flatten(),
            torch.zeros(7 * 59),
        )
        same = candidate.argmax(dim=-1) == oracle.argmax(dim=-1)
        assert (found.rows, found.agree) == (7 * 59, int(same.sum()))
        top = oracle.topk(2, dim=-1).values
        assert found.smallest_margin == float((top[..., 0] - top[..., 1]).min())


def test_two_equal_largest_logits_have_no_margin() -> None:
    oracle = torch.tensor([[3.0, 3.0, 1.0], [1.0, 2.0, 9.0]], dtype=torch.float64)
    candidate = torch.tensor([[3.0, 3.5, 1.0], [1.0, 2.0, 9.0]])
    error = torch.tensor([0.5, 0.0], dtype=torch.float64)
    found = argmax_agreement(candidate, oracle, error, torch.tensor([0.5, 0.5]))
    assert (found.agree, found.near_ties, found.smallest_margin) == (1, 1, 0.0)


def test_a_row_of_nan_is_looked_at() -> None:
    oracle = torch.tensor([[1.0, 2.0], [torch.nan, torch.nan]], dtype=torch.float64)
    found = argmax_agreement(oracle.float(), oracle, torch.zeros(2), torch.zeros(2))
    assert (found.rows, found.agree, found.near_ties) == (2, 2, 0)
    assert found.smallest_margin == 1.0


def test_one_column_cannot_disagree() -> None:
    oracle = torch.randn(5, 1, dtype=torch.float64)
    found = argmax_agreement(oracle.float(), oracle, torch.ones(5), torch.zeros(5))
    assert (found.agree, found.smallest_margin) == (5, torch.inf)
