"""What a model computes when nothing is rounded."""

from qkexport.oracle.program import ProgramOracle

__all__ = ["ProgramOracle"]
