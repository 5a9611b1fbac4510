"""ONNX Runtime's TensorRT provider on the plugin, on a real GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from engine_models import WIDTH, save_fused, spec_with

from qkexport.export import for_tensorrt_provider, save_model, to_form
from qkexport.native import find_library

REGISTERING = "libqkexport_trt_register.so"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.tensorrt,
    pytest.mark.skipif(
        "TensorrtExecutionProvider" not in ort.get_available_providers(),
        reason="this ONNX Runtime has no TensorRT provider",
    ),
    pytest.mark.skipif(find_library(REGISTERING) is None, reason=f"{REGISTERING} is not built"),
]

# A process of its own: the provider collects plugins once. No other provider may take a node.
PROGRAM = """
import sys
import numpy as np
import onnxruntime as ort
model, library, x, y = sys.argv[1:]
options = ort.SessionOptions()
options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
provider = ("TensorrtExecutionProvider", {"trt_extra_plugin_lib_paths": library})
session = ort.InferenceSession(model, options, providers=[provider])
np.save(y, session.run(None, {"x": np.load(x)})[0])
"""


def test_a_model_runs_with_its_attentions_on_the_plugin(tmp_path: Path) -> None:
    fused = ir.load(save_fused(tmp_path / "fused.onnx", spec_with(causal="upper_left")))
    save_model(for_tensorrt_provider(fused), tmp_path / "plugins.onnx")
    save_model(to_form(fused, "portable"), tmp_path / "portable.onnx")
    x = np.random.default_rng(0).normal(size=(2, 59, WIDTH)).astype(np.float16)
    np.save(tmp_path / "x.npy", x)
    files = (tmp_path / name for name in ("x.npy", "y.npy"))
    arguments = (tmp_path / "plugins.onnx", find_library(REGISTERING), *files)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, arguments)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    reference = ort.InferenceSession(
        str(tmp_path / "portable.onnx"), providers=["CPUExecutionProvider"]
    )
    (expected,) = reference.run(None, {"x": x})
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-2, atol=2e-3)
