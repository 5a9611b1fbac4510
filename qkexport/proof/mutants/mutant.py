"""A mutant: one deliberate error in one attention, of a kind that real exporters make."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Final, TypeVar

from qkexport.proof.mutants.site import Site

# Edits the site and returns True, or returns False where the error is not one: nothing to swap,
# nothing to drop.
Edit = Callable[[Site], bool]


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One kind of error.

    Attributes:
        name: In reports and on the command line.
        description: What is wrong.
        edit: Makes it so.
        rounding: The error is one of precision alone: in float64 it is none.
    """

    name: str
    description: str
    edit: Edit
    rounding: bool = False


MUTANTS: Final[dict[str, Mutant]] = {}

_EditT = TypeVar("_EditT", bound=Edit)


def mutant(name: str, *, rounding: bool = False) -> Callable[[_EditT], _EditT]:
    """Registers an edit as a mutant; its docstring is the description."""

    def register(edit: _EditT) -> _EditT:
        description = (edit.__doc__ or "").strip().split("\n")[0].rstrip(".")
        MUTANTS[name] = Mutant(name, description, edit, rounding)
        return edit

    return register
