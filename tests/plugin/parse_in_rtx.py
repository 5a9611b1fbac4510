"""Lets TensorRT-RTX's ONNX parser look the plugin up; a program, says what the parser said.

Usage: parse_in_rtx.py LIBRARY MODEL. The parser creates the plugin from the attributes of the node;
where the plugin agrees, TensorRT-RTX ends the process, since it runs none.
"""

from __future__ import annotations

import sys

import tensorrt_rtx as trt


def main(library: str, model: str) -> None:
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    builder.get_plugin_registry().load_library(library)
    network = builder.create_network()
    parser = trt.OnnxParser(network, logger)
    parser.parse_from_file(model)
    for index in range(parser.num_errors):
        sys.stdout.write(parser.get_error(index).desc() + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
