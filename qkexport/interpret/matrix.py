"""Products of matrices, and convolutions."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from qkexport.errors import UnsupportedModelError
from qkexport.interpret.call import Call, operator


@operator("MatMul")
def matmul(_: Call, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x @ y


@operator("Gemm")
def gemm(
    call: Call, x: torch.Tensor, y: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    product = (x.T if call.get("transA", 0) else x) @ (y.T if call.get("transB", 0) else y)
    alpha, beta = call.get("alpha", 1.0), call.get("beta", 1.0)
    product = product if alpha == 1 else alpha * product
    if bias is None:
        return product
    return product + (bias if beta == 1 else beta * bias)


@operator("Einsum")
def einsum(call: Call, *xs: torch.Tensor) -> torch.Tensor:
    return torch.einsum(call.get("equation").replace(" ", ""), *xs)


@operator("Conv")
def convolution(
    call: Call, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    dims = x.dim() - 2
    pads = list(call.get("pads") or [0] * 2 * dims)
    if call.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        message = f"Conv auto_pad must be NOTSET or VALID, got {call.get('auto_pad')}."
        raise UnsupportedModelError(message)
    widths = [width for axis in reversed(range(dims)) for width in (pads[axis], pads[axis + dims])]
    function = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[dims]
    return function(
        F.pad(x, widths),
        weight,
        bias,
        stride=tuple(call.get("strides") or [1] * dims),
        dilation=tuple(call.get("dilations") or [1] * dims),
        groups=call.get("group", 1),
    )


@operator("GlobalAveragePool")
def global_average(_: Call, x: torch.Tensor) -> torch.Tensor:
    return x.mean(tuple(range(2, x.dim())), keepdim=True)


@operator("BatchNormalization")
def batch_norm(
    call: Call,
    x: torch.Tensor,
    scale: torch.Tensor,
    bias: torch.Tensor,
    mean: torch.Tensor,
    variance: torch.Tensor,
) -> torch.Tensor:
    return F.batch_norm(x, mean, variance, scale, bias, eps=call.get("epsilon", 1e-5))
