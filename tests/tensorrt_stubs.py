"""Type stubs read off NVIDIA's own bindings, which import against a library that does nothing.

The wheels of the full TensorRT's bindings are small and need no GPU to be imported: they link to
ten functions of libnvinfer, libnvinfer_plugin and libnvonnxparser. Stand-ins for those are compiled
here, mypy's stubgen reads every class, method, enum value and argument, and mypy then holds this
package's code to them.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

REPOSITORY: Final = Path(__file__).parents[1]
WHEELS: Final = REPOSITORY / "build" / "wheels"
SHA256: Final[Mapping[str, str]] = {
    "kernel-lens==2.0.1": ("07cc714e8b5e7f34b672f7c7fad93febe7c747be5837ba276b1527370134ffe0"),
    "nvidia-cuda-crt==13.5.37": (
        "e898b7f73d3035fa89915a3f7bf3b54a73e90249746111aed295822c4729bb29"
    ),
    "nvidia-cuda-runtime==13.5.37": (
        "df2b79a8852f10d1fef8c848489c49eebb5754051bf870202a862831412b179d"
    ),
    "tritonclient==2.73.0": ("1f5cec19b0568e037ec4d716ae702984b3ab93e35f72b8f72c5135374dd2be9a"),
    "cuda-bindings==13.5.0": ("08b7e8d674c3266facb00453a7e34ea7d3ea965c2f594bb728f269f45f39fbe2"),
    "cuda-pathfinder==1.9.1": ("b743c132f90ad2d1e71d43fd28f31ebcde518f943e50fd44aca62b2a80d5230d"),
    "tensorrt-cu13-bindings==10.16.1.11": (
        "f986d47980d042cc126506a9b84586e55ad13737a7a46826fe45457c04d66294"
    ),
    "tensorrt-cu13-bindings==11.4.0.106": (
        "d072ac2a095e2be749fefc847adfb25d5ebe70303401df62ede8fe67a59f27fc"
    ),
    "tensorrt-dispatch-cu13-bindings==10.16.1.11": (
        "577499c883234085e30f9ede8eb56849d663dd534a694ea51bb078fe0196c35a"
    ),
    "tensorrt-dispatch-cu13-libs==10.16.1.11": (
        "47d0783a74dee3e86b5fc8bfae74be7d0573162ec62685db8f34eb262d11a2d7"
    ),
    "tensorrt-dispatch-cu13-bindings==11.4.0.106": (
        "cbf5982a01fdc1883b2775bf47f1b0d5028d7ef2dabde96ea423bd7b8e4f0ce6"
    ),
    "tensorrt-dispatch-cu13-libs==11.4.0.106": (
        "5d87d37536d91d73ce450166222dbd7893bddaa104358f221fca4e599e9f8dfc"
    ),
    "tensorrt-lean-cu13-bindings==11.4.0.106": (
        "539faf8524d7e8c5d893857d97d170ef3636f3e71262aafa670797f740e9086a"
    ),
    "tensorrt-lean-cu13-libs==11.4.0.106": (
        "e022b8d0e21f19258657aec6760e1de8b454ed176f76217e3f7ec2036c5a9410"
    ),
    "tensorrt-stubs==10.13.0.35.1": (
        "749a36a1f825db0800a82d0dabbf7ef49f3a9edc1e794c9545fb94a551613fea"
    ),
}
_ENTRY_POINTS: Final = (
    "createInferBuilder_INTERNAL",
    "createInferRefitter_INTERNAL",
    "createInferRuntime_INTERNAL",
    "createNvOnnxParserRefitter_INTERNAL",
    "createNvOnnxParser_INTERNAL",
    "getBuilderPluginRegistry",
    "getInferLibVersion",
    "getNvOnnxParserVersion",
    "getPluginRegistry",
    "initLibNvInferPlugins",
)
_LIBRARIES: Final = ("nvinfer", "nvinfer_plugin", "nvonnxparser")


def unpack_wheel(requirement: str, folder: Path) -> Path:
    """The contents of a wheel from the package index; skips the test where there is none."""
    lock = folder / "requirement.txt"
    lock.write_text(f"{requirement} --hash=sha256:{SHA256[requirement]}\n")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--require-hashes", "--dest", str(WHEELS), "--requirement", str(lock)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    name, _, version = requirement.partition("==")
    wheels = sorted(WHEELS.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    if done.returncode or not wheels:
        pytest.skip(f"cannot download {requirement}: {done.stderr.strip()[-300:]}")
    with zipfile.ZipFile(wheels[0]) as wheel:
        wheel.extractall(folder)
    return folder


def stubs_of_wheel(requirement: str, folder: Path) -> str:
    """Stubs of the full TensorRT's bindings in a wheel."""
    package = unpack_wheel(requirement, folder)
    major = requirement.partition("==")[2].partition(".")[0]
    stand_ins = compile_stand_ins(folder / "lib", major)
    paths = {"LD_LIBRARY_PATH": str(stand_ins), "PYTHONPATH": str(package)}
    return _stubgen("tensorrt_bindings.tensorrt", folder / "stubs", paths)


def stubs_of_rtx(folder: Path) -> str:
    """Stubs of the installed TensorRT-RTX."""
    return _stubgen("tensorrt_rtx_bindings.tensorrt_rtx", folder, {})


def compile_stand_ins(folder: Path, major: str) -> Path:
    folder.mkdir()
    source = folder / "stand_ins.c"
    source.write_text("\n".join(f"void *{name}(void) {{ return 0; }}" for name in _ENTRY_POINTS))
    for library in _LIBRARIES:
        file = f"lib{library}.so.{major}"
        command = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{file}", "-o", str(folder / file)]
        subprocess.run([*command, str(source)], check=True, timeout=60)
    return folder


def _stubgen(module: str, folder: Path, environment: Mapping[str, str]) -> str:
    command = [sys.executable, "-c", "from mypy.stubgen import main; main()"]
    command += ["--quiet", "--inspect-mode"]
    command += ["--module", module, "--output", str(folder)]
    subprocess.run(command, check=True, timeout=120, env={**os.environ, **environment})
    text = (folder / module.replace(".", "/")).with_suffix(".pyi").read_text()
    return "__version__: str\n" + "\n".join(map(_repair, text.splitlines())) + "\n"


_SIGNATURE: Final = re.compile(r"(?P<head>\s*def \w+\()(?P<parameters>.*)\)(?P<tail> -> .*|:.*)")


def _repair(line: str) -> str:
    """Corrects what pybind11's docstrings cannot say or stubgen does not understand."""
    if line.startswith("bool: "):  # a data type of TensorRT that would hide Python's bool
        return ""
    if line.startswith("class IHostMemory"):  # the buffer protocol is in no docstring
        return f"{line}\n    def __buffer__(self, flags: int) -> memoryview: ..."
    if line.startswith("    def write(self, data: "):  # IStreamWriter is given bytes, says its text
        return "    def write(self, data: bytes) -> int: ..."
    line = line.replace(": Dims,", ": Dims | collections.abc.Sequence[int],")
    line = line.replace(": Dims)", ": Dims | collections.abc.Sequence[int])")
    match = _SIGNATURE.match(line)
    if match is None:
        return line
    parameters = match["parameters"].split(", ")
    defaults = [place for place, text in enumerate(parameters) if "=" in text]
    late = defaults and any(
        "=" not in text and "*" not in text for text in parameters[defaults[0] :]
    )
    if late or "*args" in match["parameters"]:
        receiver = "self, " if parameters[0] == "self" or late else ""
        return f"{match['head']}{receiver}*args: Any, **kwargs: Any) -> Any: ..."
    return line


def without_syntax_errors(text: str) -> str:
    """Stubs whose malformed signatures take anything."""
    lines = text.splitlines()
    while (error := _syntax_error("\n".join(lines))) is not None:
        match = re.match(r"(\s*)def (\w+)\(", lines[error - 1])
        assert match, lines[error - 1]
        lines[error - 1] = f"{match[1]}def {match[2]}(self, *args: Any, **kwargs: Any) -> Any:"
    return "from typing import Any\n" + "\n".join(lines)


def _syntax_error(text: str) -> int | None:
    try:
        ast.parse(text)
    except SyntaxError as error:
        return error.lineno
    return None
