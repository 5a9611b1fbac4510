"""Which inputs a model accepts: names, types, and shapes with symbols that have ranges."""

from __future__ import annotations

import ast
import dataclasses
import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from qkexport.errors import UsageError
from qkexport.names import suggest

if TYPE_CHECKING:
    import onnx_ir as ir

Sizes = Mapping[str, int]

_OPERATORS: Final[Mapping[type[ast.operator], Callable[[int, int], int]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


@dataclasses.dataclass(frozen=True)
class InputDomain:
    """One input.

    Attributes:
        name: Name in the ONNX graph.
        dtype: Element type as numpy and ONNX spell it, such as `float32` or `bfloat16`.
        shape: Numbers, symbols, or arithmetic on symbols.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]

    @property
    def symbols(self) -> tuple[str, ...]:
        """Symbols that the shape depends on."""
        return tuple(_symbols((self,)))

    def shape_at(self, sizes: Sizes) -> tuple[int, ...]:
        """The shape for given symbol sizes."""
        return tuple(dim if isinstance(dim, int) else _evaluate(dim, sizes) for dim in self.shape)


@dataclasses.dataclass(frozen=True)
class SizeRange:
    """Sizes a symbol may have.

    Attributes:
        minimum: Smallest legal size.
        maximum: Largest legal size, or None.
        traced: Size in the example inputs, or None where there are none.
    """

    minimum: int = 1
    maximum: int | None = None
    traced: int | None = None

    def clamp(self, size: int) -> int:
        """The legal size nearest to `size`."""
        least = max(size, self.minimum)
        return least if self.maximum is None else min(least, self.maximum)


@dataclasses.dataclass(frozen=True)
class ModelDomain:
    """All inputs of a model, in order, and the ranges of the symbols in their shapes."""

    inputs: tuple[InputDomain, ...]
    symbols: Mapping[str, SizeRange]

    @property
    def is_dynamic(self) -> bool:
        return bool(self.symbols)


def onnx_domain(model: ir.Model) -> ModelDomain:
    """Reads the domain of an ONNX graph; its symbols have no ranges."""
    inputs = tuple(
        InputDomain(
            value.name or "",
            _dtype_name(value),
            tuple(
                dim if isinstance(dim, int) else str(dim.value or f"{value.name}_{axis}")
                for axis, dim in enumerate(value.shape or ())
            ),
        )
        for value in model.graph.inputs
        if value.name not in model.graph.initializers
    )
    return ModelDomain(inputs, {symbol: SizeRange() for symbol in _symbols(inputs)})


_ONNX_NAMES: Final = {"float": "float32", "double": "float64"}


def with_traced_sizes(domain: ModelDomain, shapes: Mapping[str, tuple[int, ...]]) -> ModelDomain:
    """The domain with the sizes that given inputs have.

    Args:
        domain: Of an ONNX graph.
        shapes: Shape by input name.

    Raises:
        UsageError: A name is unknown, or a shape does not fit the graph.
    """
    known = {item.name: item for item in domain.inputs}
    traced: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in known:
            message = f"Model has no input of that name, got {name!r}."
            note = f"its inputs are {', '.join(known)}."
            raise UsageError(message, note=note, hint=suggest(name, known))
        expected = known[name].shape
        if len(shape) != len(expected) or any(map(_differ, shape, expected)):
            message = f"Input {name} must be {list(expected)}, got {list(shape)}."
            raise UsageError(message)
        pairs = zip(expected, shape, strict=True)
        traced |= {dim: size for dim, size in pairs if isinstance(dim, str)}
    symbols = {
        symbol: dataclasses.replace(span, traced=traced.get(symbol, span.traced))
        for symbol, span in domain.symbols.items()
    }
    return ModelDomain(domain.inputs, symbols)


def _differ(size: int, dim: int | str) -> bool:
    return isinstance(dim, int) and size != dim


def _dtype_name(value: ir.Value) -> str:
    name = value.dtype.name.lower() if value.dtype else "float"
    return _ONNX_NAMES.get(name, name)


def _symbols(inputs: tuple[InputDomain, ...]) -> list[str]:
    names: dict[str, None] = {}
    for item in inputs:
        for dim in item.shape:
            if isinstance(dim, str):
                names |= dict.fromkeys(_names(dim))
    return list(names)


def _names(text: str) -> list[str]:
    tree = _parse(text)
    if tree is None:
        return [text]  # not arithmetic: the whole text names one size
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]


def _parse(text: str) -> ast.expr | None:
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    accepted = (ast.BinOp, ast.Name, ast.Constant, ast.Load, *_OPERATORS)
    return tree if all(isinstance(node, accepted) for node in ast.walk(tree)) else None


def _evaluate(text: str, sizes: Sizes) -> int:
    tree = _parse(text)
    return sizes[text] if tree is None else _evaluate_node(tree, sizes)


def _evaluate_node(node: ast.expr, sizes: Sizes) -> int:
    if isinstance(node, ast.BinOp):
        left, right = _evaluate_node(node.left, sizes), _evaluate_node(node.right, sizes)
        return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Name):
        return sizes[node.id]
    return int(ast.literal_eval(node))
