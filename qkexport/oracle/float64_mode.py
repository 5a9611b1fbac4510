"""Makes every floating value of a computation float64, whatever types the program asks for.

Models cast to float32 inside norms and to float16 outside; an oracle does neither. The mode works
below the graph, on each operator that runs, so nothing that asks for a type is overlooked: casts,
factories, the bodies of control flow. A result of a narrower floating type is an error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

EXACT: Final = torch.float64
_NARROW: Final = (torch.float32, torch.float16, torch.bfloat16)
# Checks that a tensor has the type it had when the model was traced: true no longer, on purpose.
_LOOK_UP: Final = "aten::embedding"
_TYPE_CHECKS: Final = ("aten::_assert_tensor_metadata",)


class Float64Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs operators in float64; see the module.

    Attributes:
        operators: How many ran, for tests that want to know that something did.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Runs one operator with every floating type it mentions replaced."""
        name = func._schema.name
        if name in _TYPE_CHECKS:
            return None
        self.operators += 1
        if name == _LOOK_UP:  # widen the rows that are read, not the table
            return func(*args, **(kwargs or {})).to(EXACT)
        exact_args, exact_kwargs = pytree.tree_map(_exact_type, (args, dict(kwargs or {})))
        result = _run(func, name, exact_args, exact_kwargs)
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.dtype in _NARROW:
                message = f"the oracle must be float64 throughout, got {leaf.dtype} from {name}"
                raise AssertionError(message)
        return result


def _exact_type(leaf: Any) -> Any:
    if isinstance(leaf, torch.dtype) and leaf in _NARROW:
        return EXACT
    if isinstance(leaf, torch.Tensor) and leaf.dtype in _NARROW:
        return leaf.to(EXACT)
    return leaf


def _run(func: Callable[..., Any], name: str, args: Any, kwargs: Any) -> Any:
    if name.startswith("qkexport::qk_norm_attention"):
        from qkexport.oracle.attention import exact_attention

        return exact_attention(func, args, kwargs)
    return func(*args, **kwargs)


@contextlib.contextmanager
def exact_arithmetic() -> Iterator[Float64Mode]:
    """A context in which PyTorch computes in float64 only.

    Attention takes the plain formula: fused kernels approximate the exponential.
    """
    default = torch.get_default_dtype()
    torch.set_default_dtype(EXACT)
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), Float64Mode() as mode:
            yield mode
    finally:
        torch.set_default_dtype(default)
