"""Where a run took place: versions and machine, for reports."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import os
import platform

import torch

from qkexport._version import __version__

_PACKAGES = ("torch", "onnx", "onnxruntime", "onnxruntime-gpu", "transformers", "numpy")


def environment() -> dict[str, str]:
    """Names to versions and facts of this machine."""
    found = {"qkexport": __version__, "python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    found["date"] = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    found["platform"] = platform.platform()
    found["processor"] = _processor()
    found["cores"] = str(os.cpu_count())
    found["threads"] = str(torch.get_num_threads())
    found["cuda"] = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return found


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123  not a path of ours
            names = (line.split(":", 1)[1].strip() for line in lines if "model name" in line)
            return next(names, platform.machine())
    except OSError:
        return platform.processor() or platform.machine()
