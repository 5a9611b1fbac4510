"""Example inputs that torch.export can tell apart.

torch.export knows an input by the identity of its example: a tensor that is given for two inputs
becomes one of them, and the program ignores the other, without a word (seen with torch 2.13).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree


def separate_inputs(
    args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments with a copy wherever a tensor occurs again.

    Args:
        args: Positional arguments, nested as the module takes them.
        kwargs: Keyword arguments likewise.
    """
    seen: set[int] = set()

    def separate(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or id(leaf) not in seen:
            seen.add(id(leaf))
            return leaf
        return leaf.detach().clone()

    separated: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map(
        separate, (tuple(args), dict(kwargs))
    )
    return separated
