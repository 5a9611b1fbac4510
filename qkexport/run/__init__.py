"""Runs a model on any backend through one interface."""

from qkexport.run.open import BACKENDS, backends_for, open_runner
from qkexport.run.runner import Runner, TensorInfo
from qkexport.run.tensorrt import TrtRunner

__all__ = ["BACKENDS", "Runner", "TensorInfo", "TrtRunner", "backends_for", "open_runner"]
