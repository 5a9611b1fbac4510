"""Operators that move, make and measure tensors without computing on their elements."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from qkexport.interpret.call import Call, ints, operator
from qkexport.interpret.tensors import to_torch


@operator("Constant")
def constant(call: Call) -> torch.Tensor:
    for name, dtype in (
        ("value_float", 1),
        ("value_floats", 1),
        ("value_int", 7),
        ("value_ints", 7),
    ):
        value = call.get(name)
        if value is not None:
            return torch.tensor(value, dtype=call.dtype(dtype))
    tensor = to_torch(call.get("value"))
    exact = call.exact and tensor.is_floating_point()
    return tensor.double() if exact else tensor


@operator("ConstantOfShape")
def constant_of_shape(call: Call, shape: torch.Tensor) -> torch.Tensor:
    value = call.get("value")
    fill = torch.zeros(1) if value is None else to_torch(value)
    if call.exact and fill.is_floating_point():
        fill = fill.double()
    return fill.reshape(()).expand(ints(shape)).clone()


@operator("Shape")
def shape(call: Call, x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(list(x.shape)[call.get("start", 0) : call.get("end")], dtype=torch.int64)


@operator("Size")
def size(_: Call, x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(x.numel())


@operator("Reshape")
def reshape(call: Call, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """0 keeps the input's size unless `allowzero`."""
    keep_zero = call.get("allowzero", 0)
    sizes = [
        x.shape[axis] if size == 0 and not keep_zero else size
        for axis, size in enumerate(ints(target))
    ]
    if -1 in sizes and 0 in sizes:  # PyTorch calls this ambiguous; ONNX infers from the rest
        sizes[sizes.index(-1)] = 0
    return x.reshape(sizes)


@operator("Transpose")
def transpose(call: Call, x: torch.Tensor) -> torch.Tensor:
    return x.permute(call.get("perm") or tuple(reversed(range(x.dim()))))


@operator("Flatten")
def flatten(call: Call, x: torch.Tensor) -> torch.Tensor:
    axis = call.get("axis", 1)
    axis += x.dim() if axis < 0 else 0
    rows = 1
    for size in x.shape[:axis]:
        rows *= size
    return x.reshape(rows, x.numel() // rows if rows else 0)


@operator("Squeeze")
def squeeze(call: Call, x: torch.Tensor, axes: torch.Tensor | None = None) -> torch.Tensor:
    chosen = call.get("axes") if axes is None else ints(axes)
    return x.squeeze() if chosen is None else x.squeeze(tuple(chosen))


@operator("Unsqueeze")
def unsqueeze(call: Call, x: torch.Tensor, axes: torch.Tensor | None = None) -> torch.Tensor:
    chosen = call.get("axes") if axes is None else ints(axes)
    rank = x.dim() + len(chosen)
    for axis in sorted(axis % rank for axis in chosen):
        x = x.unsqueeze(axis)
    return x


@operator("Expand")
def expand(_: Call, x: torch.Tensor, shape: torch.Tensor) -> torch.Tensor:
    target = ints(shape)
    own = [1] * (len(target) - x.dim()) + list(x.shape)
    target = [1] * (len(own) - len(target)) + target
    # ONNX broadcasts both ways: a 1 in the target keeps the input's size
    return x.expand([a if b == 1 else b for a, b in zip(own, target, strict=True)])


@operator("Concat")
def concat(call: Call, *xs: torch.Tensor) -> torch.Tensor:
    return torch.cat(xs, dim=call.get("axis"))


@operator("Tile")
def tile(_: Call, x: torch.Tensor, repeats: torch.Tensor) -> torch.Tensor:
    return x.repeat(ints(repeats))


@operator("Split")
def split(
    call: Call, x: torch.Tensor, sizes: torch.Tensor | None = None
) -> tuple[torch.Tensor, ...]:
    axis, given = call.get("axis", 0), call.get("split")
    if sizes is not None or given is not None:
        return torch.split(x, list(given) if sizes is None else ints(sizes), axis)
    step = -(-x.shape[axis] // call.num_outputs)
    return torch.split(x, step, axis)


@operator("Slice")
def slice_(
    call: Call,
    x: torch.Tensor,
    starts: torch.Tensor | None = None,
    ends: torch.Tensor | None = None,
    axes: torch.Tensor | None = None,
    steps: torch.Tensor | None = None,
) -> torch.Tensor:
    first = list(call.get("starts")) if starts is None else ints(starts)
    last = list(call.get("ends")) if ends is None else ints(ends)
    chosen = call.get("axes") if axes is None else ints(axes)
    stride = [1] * len(first) if steps is None else ints(steps)
    for axis, start, end, step in zip(
        range(len(first)) if chosen is None else chosen, first, last, stride, strict=True
    ):
        x = x.index_select(axis, _kept(start, end, step, x.shape[axis]))
    return x


def _kept(start: int, end: int, step: int, size: int) -> torch.Tensor:
    """Indices of a slice; PyTorch slices only forwards, and warns about ends like 2**63 - 1."""
    stop = None if step < 0 and end < -size else end
    return torch.tensor(list(range(size)[slice(start, stop, step)]), dtype=torch.int64)


@operator("Pad")
def pad(
    call: Call,
    x: torch.Tensor,
    pads: torch.Tensor | None = None,
    value: torch.Tensor | None = None,
    axes: torch.Tensor | None = None,
) -> torch.Tensor:
    amounts = list(call.get("pads")) if pads is None else ints(pads)
    chosen = list(range(x.dim())) if axes is None else [axis % x.dim() for axis in ints(axes)]
    pairs = {axis: (amounts[i], amounts[i + len(chosen)]) for i, axis in enumerate(chosen)}
    widths = [width for axis in reversed(range(x.dim())) for width in pairs.get(axis, (0, 0))]
    mode = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}
    kind = mode[call.get("mode", "constant")]
    if kind == "constant":
        return F.pad(x, widths, value=0 if value is None else value.item())
    while len(widths) > 2 and widths[-2:] == [0, 0]:  # PyTorch pads only the last axes here
        widths = widths[:-2]
    return F.pad(x, widths, mode=kind)


@operator("Range")
def range_(_: Call, start: torch.Tensor, limit: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    return torch.arange(start.item(), limit.item(), delta.item(), dtype=start.dtype)


@operator("EyeLike")
def eye_like(call: Call, x: torch.Tensor) -> torch.Tensor:
    dtype = x.dtype if call.get("dtype") is None else call.dtype(call.get("dtype"))
    return torch.ones(x.shape).tril(call.get("k", 0)).triu(call.get("k", 0)).to(dtype)


@operator("Trilu")
def trilu(call: Call, x: torch.Tensor, k: torch.Tensor | None = None) -> torch.Tensor:
    diagonal = 0 if k is None else int(k)
    return x.triu(diagonal) if call.get("upper", 1) else x.tril(diagonal)


@operator("DepthToSpace")
def depth_to_space(call: Call, x: torch.Tensor) -> torch.Tensor:
    """Mode CRD is pixel_shuffle; DCR has the block outermost."""
    block = call.get("blocksize")
    if call.get("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, block)
    n, c, h, w = x.shape
    y = x.reshape(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2)
    return y.reshape(n, c // block**2, h * block, w * block)


@operator("SpaceToDepth")
def space_to_depth(call: Call, x: torch.Tensor) -> torch.Tensor:
    n, c, h, w = x.shape
    block = call.get("blocksize")
    y = x.reshape(n, c, h // block, block, w // block, block)
    crd = call.get("mode", "DCR") == "CRD"
    y = y.permute(0, 1, 3, 5, 2, 4) if crd else y.permute(0, 3, 5, 1, 2, 4)
    return y.reshape(n, c * block**2, h // block, w // block)
