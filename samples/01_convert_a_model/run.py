"""Runs a converted model in stock ONNX Runtime, at a size it was not traced at."""

import sys

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
input_ids = np.random.default_rng(0).integers(0, 1000, (3, 37))
(logits,) = session.run(None, {"input_ids": input_ids})
print("logits", logits.shape)
