"""Greedy decoding looks at one number per row: whether it is the same one, and by what margin."""

from __future__ import annotations

import torch

from qkexport.compare.results import ArgmaxAgreement
from qkexport.compare.scan import as_rows, chunks


def argmax_agreement(
    candidate: torch.Tensor, oracle: torch.Tensor, error: torch.Tensor, allowed: torch.Tensor
) -> ArgmaxAgreement:
    """Compares the argmax of each row.

    A row that differs is a near tie when the oracle's values of the two choices are no further
    apart than both may be wrong together. Rows that hold NaN are counted as they are.

    Args:
        candidate: Logits `[..., vocabulary]` of any floating type.
        oracle: Exact logits, float64.
        error: The largest error of each row, `[num_rows]`.
        allowed: The largest error each row may have, `[num_rows]`.
    """
    c, o = as_rows(candidate), as_rows(oracle)
    margins = torch.cat([_margins(block) for (block,) in chunks(o) if block is not None])
    # no error of this size moves the argmax of the other rows; looking for one is slow
    doubtful = (~(margins > 2 * error)).nonzero()[:, 0]
    chosen, best = c[doubtful].argmax(dim=1), o[doubtful].argmax(dim=1)
    rows = torch.arange(len(doubtful))
    gap = o[doubtful][rows, best] - o[doubtful][rows, chosen]
    other = chosen != best
    near = other & (gap <= 2 * allowed[doubtful])
    return ArgmaxAgreement(
        len(margins), len(margins) - int(other.sum()), int(near.sum()), _smallest(margins)
    )


def _margins(rows: torch.Tensor) -> torch.Tensor:
    """Distance between the two largest values of each row, `[num_rows]`; inf with one column."""
    if rows.shape[1] == 1:
        return torch.full((len(rows),), torch.inf, dtype=rows.dtype)
    first, second = rows.topk(2, dim=1).values.unbind(dim=1)
    return torch.where(first == second, 0.0, first - second)  # infinities tie too


def _smallest(margins: torch.Tensor) -> float:
    finite = margins[~margins.isnan()]
    return float(finite.min()) if len(finite) else torch.inf
