"""Exports the model without qkexport, as torch.onnx does it: python export_plain.py FILE."""

import sys

import torch
from model import qwen3

module, inputs, _, axes = qwen3()
program = torch.onnx.export(module.eval(), inputs, dynamic_shapes=axes, opset_version=24)
assert program is not None
program.save(sys.argv[1])
