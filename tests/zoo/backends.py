"""The table of backends in the documentation, made from what the tests draw attentions from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from attention_grid import OPTIONS

from qkexport.spec import NormAxis, QkNorm
from zoo import FAMILIES

_TESTS: Final = Path(__file__).parents[1]
_NORMS: Final = {QkNorm.RMS: "RMS", QkNorm.LAYER: "LayerNorm", QkNorm.L2: "L2"}
_AXES: Final = {NormAxis.HEAD: "per head", NormAxis.HIDDEN: "over all heads"}


def table() -> str:
    """One line a backend, in Markdown."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "| | norms | types | head dims tested | what was done with it |"
    yield "|---|---|---|---|---|"
    # Whole attentions are drawn from every norm and axis of the contract.
    norms = f"{_listed(_NORMS[norm] for norm in QkNorm)}; {' or '.join(_AXES[a] for a in NormAxis)}"
    for cells in (_bodies(), _cpu(), _cuda(), _rtx(), _TENSORRT):
        yield f"| {cells[0]} | {norms} | {' | '.join(cells[1:])} |"


def _bodies() -> tuple[str, ...]:
    assert set(OPTIONS["qk_norm"]) == {str(norm) for norm in QkNorm}
    opsets = OPTIONS["opset"]
    types = _listed(str(dtype).removeprefix("torch.") for dtype in OPTIONS["dtype"])
    return (
        "ONNX bodies, stock ONNX Runtime",
        types.replace("bfloat16", "bfloat16 emulated"),
        f"{_numbers(dim for dims in OPTIONS['head_dims'] for dim in dims)}: no limit",
        f"MATCHED the float64 reference, opsets {min(opsets)} to {max(opsets)}",
    )


def _cpu() -> tuple[str, ...]:
    source = (_TESTS / "cpp" / "test_attention.cc").read_text()
    lists = re.findall(r"head_dim : \{([\d, ]+)\}", source)
    return (
        "CPU kernel, in ONNX Runtime and PyTorch",
        _types(source),
        f"{_numbers(int(dim) for found in lists for dim in found.split(','))}: no limit",
        "MATCHED, with AMX, AVX-512, AVX2 and plain C++; [measured](plugins/README.md)",
    )


def _cuda() -> tuple[str, ...]:
    source = (_TESTS / "cuda" / "cases" / "case_generator.cc").read_text()
    (dims,) = re.findall(r"kHeadDims = \{([\d,\s]+)\}", source)
    return (
        "CUDA kernels and TensorRT plugin",
        _types(re.findall(r"kTypes = \{[^}]*\}", source)[0]),
        f"{_numbers(map(int, dims.split(',')))}: at most 512",
        (
            "MATCHED on a CPU: in emulation, and as nvcc built them by an interpreter of PTX; created"
            " in TensorRT's and TensorRT-RTX's registries"
        ),
    )


def _rtx() -> tuple[str, ...]:
    count = sum(family.fused > 0 for family in FAMILIES)
    return (
        "TensorRT-RTX engines, of standard operators",
        "float32, float16, bfloat16",
        "those of the families below",
        (
            f"BUILT on a CPU for sm_89 and sm_120, all {count} rows below that fuse; nothing ran: that"
            " needs a GPU"
        ),
    )


_TENSORRT: Final = (
    "TensorRT engines",
    "float32, float16, bfloat16",
    "none: at most 512",
    "nothing was built: that needs a GPU",
)


def _types(source: str) -> str:
    names = {name.lower() for name in re.findall(r"DataType::k(B?Float\d+)", source)}
    return _listed(name for name in ("float32", "float16", "bfloat16") if name in names)


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)


def _numbers(numbers: Iterable[int]) -> str:
    return _listed(map(str, sorted(set(numbers))))
