"""Creates the plugin in a genuine plugin registry of NVIDIA's; run as a program, prints JSON.

Usage: create_in_registry.py MODULE PHASE LIBRARY [folder to import MODULE from]

LIBRARY is given to the registry, or only loaded where it registers on its own.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from qkexport.spec import OP_TYPE, AttentionSpec, AttributeValue, Causal

# Field data is not copied by the bindings: it must live as long as the collection.
KEPT: list[np.ndarray] = []


def fields(trt: Any, attributes: dict[str, AttributeValue]) -> Any:
    kinds = trt.PluginFieldType
    made = []
    for name, value in attributes.items():
        if isinstance(value, str):
            data, kind = np.array(list(value.encode()), dtype=np.int8), kinds.CHAR
        elif isinstance(value, int):
            data, kind = np.array([value], dtype=np.int32), kinds.INT32
        else:
            data, kind = np.array([value], dtype=np.float32), kinds.FLOAT32
        KEPT.append(data)
        made.append(trt.PluginField(name, data, kind))
    return trt.PluginFieldCollection(made)


def main(module: str, phase_name: str, library: str, *folder: str) -> None:
    sys.path[:0] = folder
    trt = importlib.import_module(module)
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger) if hasattr(trt, "Builder") else None
    registry = builder.get_plugin_registry() if builder else trt.get_plugin_registry()
    registers = Path(library).name == "libqkexport_trt_register.so"
    handle = ctypes.CDLL(library) if registers else registry.load_library(library)
    creator = registry.get_creator(OP_TYPE, "1", "")
    phase = getattr(trt.TensorRTPhase, phase_name)

    good = AttentionSpec(num_heads=4, num_kv_heads=2, scale=0.25, causal=Causal.LOWER_RIGHT)
    attributes = good.to_attributes(input_roles="query,key,value", output_roles="output")
    plugins = [creator.create_plugin("good", fields(trt, attributes), phase) for _ in range(3)]
    found = {
        "version": trt.__version__,
        "fields": [field.name for field in creator.field_names],
        "created": [plugin is not None for plugin in plugins],
        "refused": creator.create_plugin("bad", fields(trt, {**attributes, "num_heads": 3}), phase)
        is None,
        "other version": registry.get_creator(OP_TYPE, "2", "") is not None,
    }
    del plugins[1], plugins[0], plugins  # not in the order they were made
    if not registers:
        registry.deregister_library(handle)
    sys.stdout.write("\n" + json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
