"""Elements that operators make, move, select, join and add up.

    Range(0, s, 1)                              index
    Slice(x, start)                             element at index + start
    Concat(x[:1] - 1, x) of position numbers    one run that begins a step earlier
    CumSum of zeros                             zeros

A rule takes the elements of the inputs and returns those of the output, or None without a proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import onnx_ir as ir

from qkexport.match.affine import Affine, Element, is_at_least, number, of_array
from qkexport.match.offsets import Offset
from qkexport.match.sizes import ONE, Size

if TYPE_CHECKING:
    from qkexport.match.elements import Elements, Sizes

Rule: TypeAlias = "Callable[[Elements, ir.Node, Sizes], Element | None]"


def _range(elements: Elements, node: ir.Node, sizes: Sizes) -> Element | None:
    start, step = (elements.scalar(node.inputs[i]) for i in (0, 2))
    if start is None or step is None or step.known is None:
        return None
    return Affine(start, (step.known,))


def _filled(elements: Elements, node: ir.Node, sizes: Sizes) -> Element | None:
    given = node.attributes.get("value")
    found = None if given is None else of_array(given.as_tensor().numpy())
    return number(found.offset.number, len(sizes)) if isinstance(found, Affine) else found


def _same(elements: Elements, node: ir.Node, sizes: Sizes) -> Element | None:
    return elements.of(node.inputs[0])


def _reshaped(elements: Elements, node: ir.Node, sizes: Sizes) -> Element | None:
    """Axes of size one come and go; all others stay in order."""
    source = elements.of(node.inputs[0])
    if isinstance(source, bool):
        return source
    found = elements.affine(node.inputs[0])
    if found is None:
        return None
    element, before = found
    if element.is_uniform:
        return Affine(element.offset, (0,) * len(sizes))
    kept = [(size, s) for size, s in zip(before, element.slopes, strict=True) if size != ONE]
    if [size for size, _ in kept] != [size for size in sizes if size != ONE]:
        return None
    slopes = iter(kept)
    return Affine(element.offset, tuple(0 if s == ONE else next(slopes)[1] for s in sizes))


def _transposed(elements: Elements, node: ir.Node, sizes: Sizes) -> Element | None:
    element = elements.of(node.inputs[0])
    if not isinstance(element, Affine):
        return element
    perm = node.attributes.get("perm")
    order = perm.as_ints() if perm else range(len(element.slopes))[::-1]
    return Affine(element.offset, tuple(element.slopes[i] for i in order))


def _expanded(elements: Elements, node: ir.Node, sizes: Sizes) -> Element | None:
    return elements.spread(node.inputs[0], sizes)


def _sliced(elements: Elements, node: ir.Node, sizes: Sizes) -> Element | None:
    element = elements.of(node.inputs[0])
    if not isinstance(element, Affine) or element.is_uniform:
        return element
    if len(node.inputs) < 3:
        return None
    integers = elements.shapes.integers
    rank = len(element.slopes)
    axes = integers(node.inputs[3]) if len(node.inputs) > 3 else tuple(range(rank))
    steps = integers(node.inputs[4]) if len(node.inputs) > 4 else (1,) * rank
    if axes is None or steps is None:
        return None
    offset, slopes = element.offset, list(element.slopes)
    for i, (axis, step) in enumerate(zip(axes, steps, strict=False)):
        place = axis % rank
        slope = element.slopes[place]
        if not slope:
            continue
        start = _component(elements, node.inputs[1], i)
        # A start past the end leaves nothing; one before the first would count from the end.
        if start is None or step < 1 or not is_at_least(start, 0, ()):
            return None
        offset = offset.plus(start.offset, slope)
        slopes[place] = slope * step
    return Affine(offset, tuple(slopes))


def _component(elements: Elements, value: ir.Value | None, place: int) -> Affine | None:
    """One element of a vector, or of each innermost vector of a tensor; without that axis."""
    if value is None:
        return None
    array = elements.shapes.constants().array(value)
    if array is not None and array.ndim and place < array.shape[-1]:
        found = of_array(array[..., place])
        return found if isinstance(found, Affine) else None
    sizes = elements.shapes.sizes(value)
    if sizes is None or not sizes or sizes[-1].known is None or place >= sizes[-1].count:
        return None
    element = elements.of(value)
    if isinstance(element, Affine):
        offset = element.offset.plus(Offset(place * element.slopes[-1]))
        return Affine(offset, element.slopes[:-1])
    return _joined_component(elements, value.producer(), place, len(sizes))


def _joined_component(
    elements: Elements, node: ir.Node | None, place: int, rank: int
) -> Affine | None:
    """Of vectors that Concat made of single elements."""
    if node is None or node.domain not in ("", "ai.onnx") or node.op_type != "Concat":
        return None
    if node.attributes["axis"].as_int() not in (-1, rank - 1) or place >= len(node.inputs):
        return None
    for value in node.inputs[: place + 1]:
        sizes = None if value is None else elements.shapes.sizes(value)
        if sizes is None or len(sizes) != rank or sizes[-1] != ONE:
            return None
    element = elements.of(node.inputs[place])
    return Affine(element.offset, element.slopes[:-1]) if isinstance(element, Affine) else None


def _gathered(elements: Elements, node: ir.Node, sizes: Sizes) -> Element | None:
    element = elements.of(node.inputs[0])
    if isinstance(element, bool) or element is None:
        return element
    if element.is_uniform:
        return Affine(element.offset, (0,) * len(sizes))
    axis = node.attributes.get("axis")
    place = (0 if axis is None else axis.as_int()) % len(element.slopes)
    before, slope, after = (
        element.slopes[:place], element.slopes[place], element.slopes[place + 1 :],
    )  # fmt: skip
    rank = len(sizes) - len(before) - len(after)
    spread = Affine(element.offset, (*before, *(0,) * rank, *after))
    if not slope or rank < 0:
        return None if rank < 0 else spread
    index = elements.affine(node.inputs[1])
    if index is None or len(index[1]) != rank:
        return None
    if not is_at_least(index[0], 0, index[1]):  # a negative one counts from behind
        return None
    taken = (*(0,) * len(before), *index[0].slopes, *(0,) * len(after))
    return spread.plus(Affine(index[0].offset, taken).times(slope))


def _gathered_points(elements: Elements, node: ir.Node, sizes: Sizes) -> Element | None:
    """GatherND: each innermost vector of the indices is a place in the leading axes."""
    element = elements.of(node.inputs[0])
    batch = node.attributes.get("batch_dims")
    if isinstance(element, bool) or element is None:
        return element
    if element.is_uniform:
        return Affine(element.offset, (0,) * len(sizes))
    points = None if node.inputs[1] is None else elements.shapes.sizes(node.inputs[1])
    if points is None or not points or (batch is not None and batch.as_int()):
        return None
    width = points[-1].known
    if width is None or width > len(element.slopes):
        return None
    kept = element.slopes[width:]
    total = Affine(element.offset, (*(0,) * (len(points) - 1), *kept))
    for place, slope in enumerate(element.slopes[:width]):
        if not slope:
            continue
        index = _component(elements, node.inputs[1], place)
        if index is None or not is_at_least(index, 0, points[:-1]):
            return None
        spread = Affine(index.offset, (*index.slopes, *(0,) * len(kept)))
        total = total.plus(spread.times(slope))
    return total


def _joined(elements: Elements, node: ir.Node, sizes: Sizes) -> Element | None:
    """Parts that continue each other along the axis."""
    found = [elements.of(value) for value in node.inputs]
    if any(isinstance(element, bool) for element in found):
        return found[0] if all(element is found[0] for element in found) else None
    parts = [part for part in map(elements.affine, node.inputs) if part is not None]
    if len(parts) != len(node.inputs) or not sizes:
        return None
    if any(len(part_sizes) != len(sizes) for _, part_sizes in parts):
        return None
    place = node.attributes["axis"].as_int() % len(sizes)
    slope = _slope_along(parts, place)
    if slope is None:
        return None
    runs = []
    start = Offset()
    for element, part_sizes in parts:
        slopes = (*element.slopes[:place], slope, *element.slopes[place + 1 :])
        runs.append(Affine(element.offset.plus(start, -slope), slopes))
        start = start.plus(Offset.of(part_sizes[place]))
    return runs[0] if all(run == runs[0] for run in runs) else None


def _slope_along(parts: Sequence[tuple[Affine, Sequence[Size]]], place: int) -> int | None:
    """The common slope of all parts that are longer than one; else that of the first two."""
    slopes = {element.slopes[place] for element, sizes in parts if sizes[place] != ONE}
    if len(slopes) == 1:
        return slopes.pop()
    if slopes:
        return None
    if len(parts) == 1:
        return 0
    return parts[1][0].offset.plus(parts[0][0].offset, -1).known


def _running_sum(elements: Elements, node: ir.Node, sizes: Sizes) -> Element | None:
    """Of zeros; of one number along the axis where the sum runs forwards."""
    element = elements.of(node.inputs[0])
    place = elements.scalar(node.inputs[1])
    each = element.known if isinstance(element, Affine) else None
    if each is None or place is None or place.known is None or not sizes:
        return None
    flags = [node.attributes.get(name) for name in ("exclusive", "reverse")]
    exclusive, backwards = (flag is not None and bool(flag.as_int()) for flag in flags)
    if each == 0:
        return element
    if backwards:
        return None
    slopes = [0] * len(sizes)
    slopes[place.known % len(sizes)] = each
    return Affine(Offset(0 if exclusive else each), tuple(slopes))


RULES: Final[dict[str, Rule]] = {
    "Range": _range,
    "ConstantOfShape": _filled,
    "Identity": _same,
    "Unsqueeze": _reshaped,
    "Squeeze": _reshaped,
    "Reshape": _reshaped,
    "Flatten": _reshaped,
    "Transpose": _transposed,
    "Expand": _expanded,
    "Slice": _sliced,
    "Gather": _gathered,
    "GatherND": _gathered_points,
    "Concat": _joined,
    "CumSum": _running_sum,
}
