"""Compares what a runtime returned with what is true, and says why."""

from qkexport.compare.expectation import Expectation
from qkexport.compare.judge import judge
from qkexport.compare.noise import NoiseEffects
from qkexport.compare.outputs import Rules, compare_outputs
from qkexport.compare.results import Comparison, OutputComparison, Status
from qkexport.compare.tolerance import Tolerance

__all__ = [
    "Comparison",
    "Expectation",
    "NoiseEffects",
    "OutputComparison",
    "Rules",
    "Status",
    "Tolerance",
    "compare_outputs",
    "judge",
]
