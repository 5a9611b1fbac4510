"""What the package can do on a machine, what each ability needs, and how to get it.

Nothing here imports a framework: the doctor runs where nothing is installed but click.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any, Final


class State(enum.StrEnum):
    """Whether a capability is there, proven by an answer that is known beforehand."""

    AVAILABLE = "available"
    MISSING = "missing"
    BROKEN = "broken"  # installed, but it crashes, hangs or gives a wrong answer


@dataclasses.dataclass(frozen=True)
class Capability:
    """One ability.

    Attributes:
        name: In reports.
        purpose: What one can do with it.
        packages: Distributions whose versions are told.
        modules: What must be importable for the probe to be tried.
        fix: What to do when the modules are there and the capability is not.
        timeout: Seconds after which its probe is called broken.
    """

    name: str
    purpose: str
    packages: tuple[str, ...]
    modules: tuple[str, ...]
    fix: str
    timeout: float = 120.0


_BUILD: Final = "pip install . (needs CMake and a C++17 compiler)"

# What pip installs for a module; a torch without CUDA is smaller: see the README.
_REQUIREMENTS: Final = {
    "numpy": "numpy",
    "onnx": "onnx",
    "onnx_ir": "onnx-ir",
    "onnxruntime": "'onnxruntime>=1.32'",
    "onnxscript": "onnxscript",
    "tensorrt": "tensorrt",
    "tensorrt_rtx": "tensorrt-rtx-cu13",
    "torch": "'torch>=2.13,<2.14'",
    "transformers": "'transformers>=5.24,<6'",
}


def install_command(modules: Sequence[str]) -> str:
    """The command that installs some modules."""
    return f"pip install {' '.join(_REQUIREMENTS[module] for module in modules)}"


CAPABILITIES: Final = (
    Capability(
        "pytorch",
        "the operator in PyTorch, eager",
        ("torch",),
        ("torch", "numpy"),
        "pip install --force-reinstall torch numpy onnx onnx-ir onnxscript",
    ),
    Capability(
        "convert",
        "PyTorch models to ONNX with fused attention",
        ("torch", "onnx", "onnx-ir", "onnxscript"),
        ("torch", "numpy", "onnx", "onnx_ir", "onnxscript"),
        "pip install --force-reinstall torch numpy onnx onnx-ir onnxscript",
    ),
    Capability(
        "ort-stock",
        "converted models in ONNX Runtime as it is",
        ("onnxruntime", "onnxruntime-gpu"),
        ("torch", "onnx_ir", "onnxruntime"),
        "pip install --upgrade onnxruntime",
    ),
    Capability(
        "ort",
        "the fused CPU kernel in ONNX Runtime",
        ("onnxruntime", "onnxruntime-gpu"),
        ("torch", "onnx_ir", "onnxruntime"),
        _BUILD,
    ),
    Capability(
        "plugin",
        "the TensorRT plugin, emulated on the CPU",
        (),
        ("torch",),
        "pip install . --config-settings=cmake.define.QKEXPORT_BUILD_EMULATION=ON",
    ),
    Capability(
        "cuda",
        "the fused kernels on an NVIDIA GPU",
        ("torch",),
        ("torch",),
        "install an NVIDIA driver, torch with CUDA, and build with QKEXPORT_BUILD_CUDA=ON",
    ),
    Capability(
        "tensorrt",
        "engines with the plugin, built on their GPU",
        ("tensorrt", "tensorrt-cu12", "tensorrt-cu13"),
        ("tensorrt",),
        "use a machine with an NVIDIA GPU and its driver",
    ),
    Capability(
        "tensorrt-rtx",
        "engines built ahead of time on any machine",
        ("tensorrt-rtx-cu13", "tensorrt-rtx-cu12"),
        ("torch", "onnx_ir", "tensorrt_rtx"),
        "pip install --force-reinstall tensorrt-rtx-cu13",
    ),
    Capability(
        "hf",
        "models of Hugging Face transformers",
        ("transformers", "safetensors"),
        ("torch", "transformers"),
        "pip install --upgrade 'transformers>=5.24,<6'",
    ),
)


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What was found out about one capability.

    Attributes:
        capability: Which.
        state: The verdict.
        detail: What the probe computed, or why it could not.
        versions: Installed distributions.
        fix: Command to run; empty when available.
    """

    capability: Capability
    state: State
    detail: str
    versions: dict[str, str]
    fix: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As it stands in JSON documents."""
        return {
            "name": self.capability.name,
            "purpose": self.capability.purpose,
            "state": str(self.state),
            "detail": self.detail,
            "versions": self.versions,
            "fix": self.fix,
        }


@dataclasses.dataclass(frozen=True)
class DoctorReport:
    """All capabilities; true when models can be converted and nothing installed is broken."""

    diagnoses: tuple[Diagnosis, ...]
    python: str
    platform: str

    def __bool__(self) -> bool:
        states = {diagnosis.capability.name: diagnosis.state for diagnosis in self.diagnoses}
        usable = states.get("convert", State.AVAILABLE) is State.AVAILABLE
        return usable and State.BROKEN not in states.values()

    def to_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return {
            "healthy": bool(self),
            "python": self.python,
            "platform": self.platform,
            "capabilities": [diagnosis.to_dict() for diagnosis in self.diagnoses],
        }
