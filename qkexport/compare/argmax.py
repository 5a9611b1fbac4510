"""Greedy decoding looks at one number per row: whether it is the same one, and by what margin."""

from __future__ import annotations

import torch

from qkexport.compare.results import ArgmaxAgreement
from qkexport.compare.scan import as_rows, chunks


def argmax_agreement(
    candidate: torch.Tensor, oracle: torch.Tensor, allowed: torch.Tensor
) -> ArgmaxAgreement:
    """Compares the argmax of each row.

    A row that differs is a near tie when the oracle's values of the two choices are no further
    apart than both may be wrong together. Rows that hold NaN are counted as they are.

    Args:
        candidate: Logits `[..., vocabulary]` of any floating type.
        oracle: Exact logits, float64.
        allowed: The largest error each row may have, `[num_rows]`.
    """
    agree = near = 0
    smallest = torch.inf
    start = 0
    for c, o in chunks(as_rows(candidate), as_rows(oracle)):
        assert c is not None
        assert o is not None
        chosen, best = c.argmax(dim=1), o.argmax(dim=1)
        same = chosen == best
        gap = (o.gather(1, best[:, None]) - o.gather(1, chosen[:, None]))[:, 0]
        near += int((~same & (gap <= 2 * allowed[start : start + len(c)])).sum())
        agree += int(same.sum())
        start += len(c)
        if o.shape[1] > 1:
            top = o.topk(2, dim=1).values
            smallest = min(smallest, float((top[:, 0] - top[:, 1]).min()))
    return ArgmaxAgreement(start, agree, near, smallest)
