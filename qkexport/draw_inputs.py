"""Random inputs that exercise a model: symmetric about zero, indices inside their tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from qkexport.domain import InputDomain, ModelDomain, Sizes

if TYPE_CHECKING:
    import onnx_ir as ir
    import torch

# Nodes that move indices around without changing them.
_MOVES_INDICES: Final = frozenset(
    {"Cast", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose",
     "Unsqueeze"}
)  # fmt: skip
_MASK_KEEPS: Final = 0.75


def index_bounds(model: ir.Model) -> dict[str, int]:
    """How many rows the smallest table has that each integer input looks up.

    Args:
        model: Graph with Gather nodes on weights, such as embeddings.

    Returns:
        Input name to the exclusive upper bound of its values.
    """
    bounds: dict[str, int] = {}
    for node in model.graph:
        if node.op_type != "Gather" or len(node.inputs) < 2:
            continue
        table, indices = node.inputs[0], node.inputs[1]
        axis = node.attributes.get_int("axis", 0)
        rows = table.shape[axis] if table is not None and table.shape is not None else None
        origin = _origin(indices)
        if isinstance(rows, int) and origin is not None and origin.is_graph_input():
            name = origin.name or ""
            bounds[name] = min(rows, bounds.get(name, rows))
    return bounds


def _origin(value: ir.Value | None) -> ir.Value | None:
    while value is not None:
        node = value.producer()
        if node is None or node.op_type not in _MOVES_INDICES:
            return value if node is None else None
        value = node.inputs[0]
    return None


def draw_inputs(
    domain: ModelDomain,
    sizes: Sizes,
    *,
    seed: int,
    bounds: Mapping[str, int],
    examples: Mapping[str, torch.Tensor],
) -> dict[str, torch.Tensor]:
    """Draws one value for each input.

    Floats are standard normal: values of one sign make normalized vectors nearly parallel, and a
    softmax over equal scores tests nothing. Integers lie below their table's end, or else in the
    range of their example.

    Args:
        domain: Names, types and shapes.
        sizes: Size of each symbol.
        seed: Of the generator; the same seed draws the same values.
        bounds: From `index_bounds`.
        examples: Inputs whose values are known to be meaningful.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    return {
        item.name: _draw(item, sizes, generator, bounds.get(item.name), examples.get(item.name))
        for item in domain.inputs
    }


def _draw(
    item: InputDomain,
    sizes: Sizes,
    generator: torch.Generator,
    bound: int | None,
    example: torch.Tensor | None,
) -> torch.Tensor:
    import torch

    shape = item.shape_at(sizes)
    dtype: torch.dtype = getattr(torch, item.dtype)
    if dtype.is_floating_point:
        # float16 and bfloat16 are drawn in float32, so that every type gets the same values
        return torch.randn(shape, generator=generator).to(dtype)
    if dtype is torch.bool:
        return _draw_mask(shape, generator)
    if bound is not None:
        return torch.randint(0, bound, shape, generator=generator).to(dtype)
    if example is not None and example.numel():
        low, high = int(example.min()), int(example.max())
        return torch.randint(low, high + 1, shape, generator=generator).to(dtype)
    if "mask" in item.name and len(shape) == 2:
        return _draw_padding(shape, generator).to(dtype)
    return torch.randint(0, 2, shape, generator=generator).to(dtype)


def _draw_mask(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Mostly true; the first column always, as a row that sees nothing has no one right answer."""
    import torch

    mask = torch.rand(shape, generator=generator) < _MASK_KEEPS
    if mask.ndim and mask.shape[-1]:
        mask[..., 0] = True
    return mask


def _draw_padding(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Right padding: each row keeps a prefix of at least one."""
    import torch

    lengths = torch.randint(1, max(2, shape[1] + 1), (shape[0], 1), generator=generator)
    return torch.arange(shape[1]) < lengths
