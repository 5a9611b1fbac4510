"""An interpreter of ONNX graphs on PyTorch: exact in float64, or as PyTorch rounds."""

from qkexport.interpret.interpreter import Interpreter

__all__ = ["Interpreter"]
