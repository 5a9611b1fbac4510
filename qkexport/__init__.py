"""Export PyTorch models with QK-norm attention to ONNX Runtime and TensorRT, with proof."""

from qkexport._version import __version__

__all__ = ["__version__"]
