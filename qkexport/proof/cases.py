"""The inputs of a parity run: which sizes, which values, and the seed that draws them again."""

from __future__ import annotations

import dataclasses
import enum
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

import torch

from qkexport.domain import InputDomain, ModelDomain
from qkexport.proof.reference import Reference
from qkexport.proof.values import Padding, Values, draw_floats, draw_mask
from qkexport.run.runner import Tensors
from qkexport.size_cases import SizeCase, size_cases


class Suite(enum.StrEnum):
    """How much is tried."""

    QUICK = "quick"
    FULL = "full"


class Drawable(Protocol):
    """A model as far as its inputs must be known to be drawn; see `Reference`."""

    @property
    def domain(self) -> ModelDomain:
        """What it accepts."""
        ...

    @property
    def examples(self) -> Tensors:
        """Inputs whose values are known to be meaningful."""
        ...

    @property
    def index_bounds(self) -> dict[str, int]:
        """Exclusive upper bound of the integers that each input may hold."""
        ...


@dataclasses.dataclass(frozen=True)
class Case:
    """One set of inputs, not yet drawn.

    Attributes:
        label: Name in reports: sizes, values and padding.
        sizes: Candidates for the sizes of the symbols, best first: a model may refuse some.
        values: Kind of floating values; integers are drawn within their bounds.
        padding: Kind of masks.
        seed: Of the draw.
    """

    label: str
    sizes: tuple[Mapping[str, int], ...]
    values: Values
    padding: Padding
    seed: int


def suite_cases(
    reference: Reference, suite: Suite, seed: int, *, reach: int = 0
) -> tuple[Case, ...]:
    """The cases of a suite for a model.

    Args:
        reference: The model.
        suite: `quick` tries each kind of value once, `full` at every size.
        seed: Mixed with each label, so that cases differ and can be drawn alone.
        reach: Tokens that `full` should go to, where the model takes so many.
    """
    sizes = _sizes(reference.domain, suite, reach)
    floats = any(info.dtype.is_floating_point for info in reference.inputs)
    masks = any(is_mask(item) for item in reference.domain.inputs)
    kinds = list(Values) if floats else [Values.NORMAL, Values.CONSTANT]
    paddings = list(Padding) if masks else [Padding.NONE]
    cases: dict[str, Case] = {}

    def add(size: SizeCase, values: Values, padding: Padding) -> None:
        label = f"{size.label} {values}" + (f" {padding}" if masks else "")
        own = zlib.crc32(f"{seed} {label}".encode())
        cases.setdefault(label, Case(label, size.candidates, values, padding, own))

    base, odd = sizes[0], next((size for size in sizes if size.label == "odd"), sizes[0])
    for size in sizes:
        add(size, Values.NORMAL, paddings[0])
    for values in kinds:
        for size in (base, odd) if suite is Suite.FULL else (odd,):
            add(size, values, paddings[-1] if masks else Padding.NONE)
    for padding in paddings:
        for size in (base, odd) if suite is Suite.FULL else (odd,):
            add(size, Values.NORMAL, padding)
    return tuple(cases.values())


_LARGEST: Final = 512
_FURTHEST: Final = 8192  # a window that is wider still needs inputs of the user's own
_LARGEST_BATCH: Final = 8  # more of the same only takes longer


def _sizes(domain: ModelDomain, suite: Suite, reach: int) -> tuple[SizeCase, ...]:
    """As a conversion is checked; `full` adds both ends of the lengths, and a larger batch."""
    sizes = list(size_cases(domain))
    largest = max(_LARGEST, reach if reach <= _FURTHEST else 0)
    if suite is Suite.FULL and domain.is_dynamic:
        ends = {
            "smallest": {name: span.minimum for name, span in domain.symbols.items()},
            "largest": {
                name: span.clamp(largest) if span.maximum is None else min(span.maximum, largest)
                for name, span in domain.symbols.items()
                if _is_length(domain, name)
            },
            "batch": {
                name: span.clamp(_LARGEST_BATCH)
                for name, span in domain.symbols.items()
                if not _is_length(domain, name)
            },
        }
        known = [candidate for size in sizes for candidate in size.candidates]
        for label, ends_of in ends.items():
            whole = {**sizes[0].candidates[0], **ends_of}
            if whole not in known:
                sizes.append(SizeCase(label, (whole,)))
    return tuple(sizes)


def _is_length(domain: ModelDomain, symbol: str) -> bool:
    """False for batch sizes."""
    return any(symbol in map(str, item.shape[1:]) for item in domain.inputs)


def is_mask(item: InputDomain) -> bool:
    """True for an input that says which positions count."""
    return item.dtype == "bool" or ("mask" in item.name and len(item.shape) >= 2)


def draw(reference: Drawable, case: Case, sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
    """Draws the inputs of a case at given sizes.

    Integers lie below the end of the table they look up, or within their example's range; masks of
    floats are 0 or the lowest finite value.
    """
    generator = torch.Generator().manual_seed(case.seed)
    return {
        item.name: _draw(reference, item, case, item.shape_at(sizes), generator)
        for item in reference.domain.inputs
    }


def _draw(
    reference: Drawable,
    item: InputDomain,
    case: Case,
    shape: tuple[int, ...],
    generator: torch.Generator,
) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, item.dtype)
    if is_mask(item):
        mask = draw_mask(case.padding, shape, generator)
        if dtype.is_floating_point:
            return torch.zeros(shape, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)
        return mask.to(dtype)
    if dtype.is_floating_point:
        return draw_floats(case.values, shape, dtype, generator)
    return _draw_integers(reference, item, case, shape, generator).to(dtype)


def _draw_integers(
    reference: Drawable,
    item: InputDomain,
    case: Case,
    shape: tuple[int, ...],
    generator: torch.Generator,
) -> torch.Tensor:
    low, high = _range(reference, item)
    if "position" in item.name and shape:
        start = torch.randint(low, max(low + 1, high - shape[-1] + 1), (1,), generator=generator)
        return (start.clamp_max(high) + torch.arange(shape[-1])).clamp_max(high).expand(shape)
    if case.values is Values.CONSTANT:
        return torch.randint(low, high + 1, (1,), generator=generator).expand(shape)
    drawn = torch.randint(low, high + 1, shape, generator=generator)
    if drawn.numel() > 1:  # both ends of the table
        drawn.view(-1)[0], drawn.view(-1)[-1] = low, high
    return drawn


def _range(reference: Drawable, item: InputDomain) -> tuple[int, int]:
    bound = reference.index_bounds.get(item.name)
    if bound is not None:
        return 0, bound - 1
    example = reference.examples.get(item.name)
    if example is not None and example.numel():
        return int(example.min()), int(example.max())
    return 0, 1


def shapes_of(inputs: Mapping[str, torch.Tensor]) -> Iterator[str]:
    """`name [shape]` of each input, for reports."""
    for name, tensor in inputs.items():
        yield f"{name} {list(tensor.shape)}"
