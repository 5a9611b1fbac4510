"""Runs a model on any backend through one interface."""

from qkexport.run.open import BACKENDS, backends_for, open_runner
from qkexport.run.runner import Runner, TensorInfo

__all__ = ["BACKENDS", "Runner", "TensorInfo", "backends_for", "open_runner"]
