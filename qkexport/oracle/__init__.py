"""What a model computes when nothing is rounded."""

from qkexport.oracle.graph import OnnxOracle
from qkexport.oracle.program import ProgramOracle

__all__ = ["OnnxOracle", "ProgramOracle"]
