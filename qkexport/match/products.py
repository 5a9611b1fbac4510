"""Matrix products of two tensors: which axis of which operand is which axis of the result.

MatMul(a [..., m, k], b [..., k, n]) -> [..., m, n]
Einsum("bhid,bhjd->bhij", a, b)
"""

from __future__ import annotations

import dataclasses
from typing import Final

import onnx_ir as ir

from qkexport.match.facts import Facts, View, is_op
from qkexport.match.layout import BATCH, HEAD, Axis, Factor, Layout
from qkexport.match.sizes import ONE, Size

PRODUCTS = ("MatMul", "Einsum")
_SHARED: Final = (BATCH, HEAD)  # what an operand without them is repeated over


@dataclasses.dataclass(frozen=True)
class Product:
    """A product with its axes named by letters; letters of the result come in its order.

    Attributes:
        node: The node.
        left: Letters of the first operand.
        right: Letters of the second.
        result: Letters of the result.
        contracted: The one letter that is summed over.
        contracted_size: How many terms the sum has.
    """

    node: ir.Node
    left: str
    right: str
    result: str
    contracted: str
    contracted_size: Size

    @property
    def left_only(self) -> str:
        """Letters of the result that only the first operand has."""
        return "".join(c for c in self.result if c not in self.right)

    @property
    def right_only(self) -> str:
        return "".join(c for c in self.result if c not in self.left)


def find_product(facts: Facts, node: ir.Node | None) -> Product | None:
    """The product a node is, where it has a row, a column and one contracted axis."""
    if node is None or not is_op(node, *PRODUCTS) or len(node.inputs) != 2:
        return None
    if node.inputs[0] is None or node.inputs[1] is None:
        return None
    letters = _letters(facts, node)
    if letters is None:
        return None
    left, right, result = letters
    summed = {c for c in left + right if c not in result}
    if len(summed) != 1 or not all(len(set(text)) == len(text) for text in letters):
        return None
    contracted = summed.pop()
    if contracted not in left or contracted not in right:
        return None
    sizes = facts.sizes(node.inputs[0])
    if sizes is None or len(sizes) != len(left):
        return None
    product = Product(node, left, right, result, contracted, sizes[left.index(contracted)])
    return product if product.left_only and product.right_only else None


def _letters(facts: Facts, node: ir.Node) -> tuple[str, str, str] | None:
    if node.op_type == "Einsum":
        equation = node.attributes["equation"].as_string().replace(" ", "")
        if "->" not in equation or "." in equation:
            return None
        operands, result = equation.split("->")
        parts = operands.split(",")
        return (parts[0], parts[1], result) if len(parts) == 2 else None
    ranks = [facts.shapes.rank(value) if value else None for value in node.inputs]
    if ranks[0] is None or ranks[1] is None or min(ranks[0], ranks[1]) < 2:
        return None
    leading = "abcdefgh"[: max(ranks[0], ranks[1]) - 2]
    left, right = (leading[len(leading) - (rank - 2) :] for rank in (ranks[0], ranks[1]))
    return f"{left}mk", f"{right}kn", f"{leading}mn"


@dataclasses.dataclass(frozen=True)
class OperandView:
    """An operand's layout, and the digits it lacks because the product repeats it over them."""

    view: View
    copied: Axis


def operand_view(
    facts: Facts, product: Product, index: int, result: Layout, contracted: Axis
) -> OperandView | None:
    """The layout of an operand, from that of the result and of the contracted axis."""
    value = product.node.inputs[index]
    letters = (product.left, product.right)[index]
    other = (product.right, product.left)[index]
    sizes = None if value is None else facts.sizes(value)
    if value is None or sizes is None or len(sizes) != len(letters):
        return None
    axes: list[Axis] = []
    copied: list[Factor] = []
    for letter, size in zip(letters, sizes, strict=True):
        factors = contracted if letter == product.contracted else _axis(product, result, letter)
        if size == ONE and letter != product.contracted:
            copied.extend(factors)
            factors = ()
        axes.append(factors)
    missing = [c for c in product.result if c not in letters and c in other]
    copied.extend(f for c in missing for f in _axis(product, result, c) if f.label in _SHARED)
    view = View(value, tuple(axes))
    return OperandView(view, tuple(copied)) if facts.fits(view) else None


def _axis(product: Product, result: Layout, letter: str) -> Axis:
    return result[product.result.index(letter)]
