"""Deliberate errors that a comparison must notice."""

# Each module registers its mutants.
from qkexport.proof.mutants import heads, masks, norms, positions, scores
from qkexport.proof.mutants.mutant import MUTANTS, Mutant
from qkexport.proof.mutants.site import Site

__all__ = ["MUTANTS", "Mutant", "Site", "heads", "masks", "norms", "positions", "scores"]
