"""The library as ONNX Runtime and its users meet it: symbols, old runtimes, sessions, caches."""

from __future__ import annotations

import concurrent.futures
import ctypes
import json
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch

from ort.attention_session import (
    PROVIDERS,
    attention_model,
    open_session,
    run_session,
    to_ort,
)
from qkexport.errors import BackendUnavailableError
from qkexport.native import CPU_LIBRARY, find_library, ort_library_path, register_ort
from qkexport.onnx_function import attention_function
from qkexport.reference import reference_attention, signature_of
from qkexport.spec import AttentionSpec, Causal, KvCache

SPEC = AttentionSpec(num_heads=4, num_kv_heads=2, scale=0.25)


def draw_inputs(seqlen: int, head_dim: int = 16, batch_size: int = 2) -> dict[str, torch.Tensor]:
    return {
        "query": torch.randn(batch_size, 4, seqlen, head_dim),
        "key": torch.randn(batch_size, 2, seqlen, head_dim),
        "value": torch.randn(batch_size, 2, seqlen, head_dim),
    }


def exported_symbols(path: Path) -> set[str]:
    nm = shutil.which("nm")
    assert nm is not None, "nm (binutils) comes with the compiler that built the library"
    listing = subprocess.run(
        [nm, "-D", "--defined-only", str(path)], check=True, capture_output=True, text=True
    )
    return {line.split()[-1] for line in listing.stdout.splitlines()}


def test_only_the_entry_point_is_exported() -> None:
    assert exported_symbols(ort_library_path()) == {"RegisterCustomOps"}


def test_the_c_interface_exports_only_its_own_names() -> None:
    path = find_library(CPU_LIBRARY)
    assert path is not None
    assert exported_symbols(path) == {
        "qkexport_attention_cpu",
        "qkexport_attention_cpu_workspace_size",
        "qkexport_attention_params_size",
        "qkexport_cpu_available_isas",
        "qkexport_cpu_isa",
    }


def test_plain_registration_works_like_register_ort() -> None:
    inputs = draw_inputs(5)
    options = ort.SessionOptions()
    options.register_custom_ops_library(str(ort_library_path()))
    model = attention_model(SPEC, inputs)
    session = ort.InferenceSession(model.SerializeToString(), options, providers=PROVIDERS)
    ours = run_session(open_session(model), inputs)["output"]
    assert torch.equal(run_session(session, inputs)["output"], ours)


class _ApiBase(ctypes.Structure):
    _fields_ = (("get_api", ctypes.c_void_p), ("get_version", ctypes.c_void_p))


def test_an_older_runtime_gets_a_readable_error() -> None:
    messages: list[bytes] = []

    def create_status(_code: int, message: bytes) -> int:
        messages.append(message)
        return 0x1234

    create = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(create_status)
    table = (ctypes.c_void_p * 4)(ctypes.cast(create, ctypes.c_void_p))

    def get_api(version: int) -> int | None:
        return ctypes.addressof(table) if version <= 16 else None

    def get_version() -> int:
        return ctypes.cast(version_text, ctypes.c_void_p).value or 0

    version_text = ctypes.c_char_p(b"1.16.3")
    ask_api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(get_api)
    ask_version = ctypes.CFUNCTYPE(ctypes.c_void_p)(get_version)
    pointers = (ctypes.cast(function, ctypes.c_void_p) for function in (ask_api, ask_version))
    base = _ApiBase(*pointers)
    register = ctypes.CDLL(str(ort_library_path())).RegisterCustomOps
    register.restype = ctypes.c_void_p
    register.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    assert register(None, ctypes.addressof(base)) == 0x1234
    assert messages[0].startswith(b"qkexport's operators need ONNX Runtime 1.17 or newer, got 1.16")
    assert b"Hint: pip install -U onnxruntime" in messages[0]


def test_a_missing_library_says_how_to_build_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("qkexport.native.__file__", str(tmp_path / "native.py"))
    monkeypatch.delenv("QKEXPORT_LIBRARY_DIR", raising=False)
    with pytest.raises(BackendUnavailableError, match="Hint: pip install") as caught:
        register_ort(ort.SessionOptions())
    assert caught.value.exit_code == 3


def test_output_shapes_are_inferred() -> None:
    inputs = draw_inputs(5)
    outputs = ("output", "present_key", "present_value")
    model = attention_model(SPEC, inputs, outputs)
    session = open_session(model)
    shapes = {value.name: value.shape for value in session.get_outputs()}
    assert shapes == {
        "output": [2, 4, 5, 16],
        "present_key": [2, 2, 5, 16],
        "present_value": [2, 2, 5, 16],
    }


def test_many_sessions_and_threads_compute_at_once() -> None:
    inputs = [draw_inputs(seqlen) for seqlen in (3, 70, 200)]
    models = [attention_model(SPEC, x) for x in inputs]
    sessions = [open_session(model, num_threads=2) for model in models]
    expected = [run_session(s, x)["output"] for s, x in zip(sessions, inputs, strict=True)]
    jobs = [i % 3 for i in range(60)]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        results = list(pool.map(lambda i: run_session(sessions[i], inputs[i])["output"], jobs))
    assert all(torch.equal(result, expected[i]) for i, result in zip(jobs, results, strict=True))


def portable_model(spec: AttentionSpec, inputs: dict[str, torch.Tensor]) -> onnx.ModelProto:
    """The node together with its body in standard operators."""
    model = ir.from_proto(attention_model(spec, inputs))
    function = attention_function(signature_of(spec, inputs), opset=24)
    model.functions[function.identifier()] = function
    for node in model.graph:
        node.overload = function.overload
    for domain, version in function.opset_imports.items():
        model.graph.opset_imports.setdefault(domain, version)
    return ir.to_proto(model)


def executed_operators(
    model: onnx.ModelProto, inputs: dict[str, torch.Tensor], folder: Path, *, fused: bool
) -> tuple[Counter[str], torch.Tensor]:
    options = ort.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    options.log_severity_level = 4
    if fused:
        register_ort(options)
    session = ort.InferenceSession(model.SerializeToString(), options, providers=PROVIDERS)
    output = run_session(session, inputs)["output"]
    events = json.loads(Path(session.end_profiling()).read_text())
    kernels = [e for e in events if e.get("cat") == "Node" and "op_name" in e.get("args", {})]
    return Counter(event["args"]["op_name"] for event in kernels), output


def test_one_portable_model_runs_fused_with_the_library_and_inlined_without(
    tmp_path: Path,
) -> None:
    inputs = draw_inputs(20) | {"q_norm_weight": torch.rand(16), "k_norm_weight": torch.rand(16)}
    model = portable_model(SPEC, inputs)
    fused, with_library = executed_operators(model, inputs, tmp_path, fused=True)
    stock, without = executed_operators(model, inputs, tmp_path, fused=False)
    assert fused == Counter({"QKNormAttention": 1})
    assert "QKNormAttention" not in stock
    assert len(stock) > 1
    torch.testing.assert_close(with_library, without, rtol=1e-5, atol=1e-5)


def test_a_static_cache_bound_to_itself_is_appended_in_place() -> None:
    spec = AttentionSpec(
        num_heads=4, num_kv_heads=2, scale=0.25, kv_cache=KvCache.STATIC, causal=Causal.LOWER_RIGHT
    )
    inputs = draw_inputs(2, batch_size=1)
    cache = {name: torch.zeros(1, 2, 40, 16) for name in ("past_key", "past_value")}
    cache["past_key"][:, :, :6] = torch.randn(1, 2, 6, 16)
    cache["past_value"][:, :, :6] = torch.randn(1, 2, 6, 16)
    every = inputs | cache | {"kv_lengths": torch.tensor([8])}
    outputs = ("output", "present_key", "present_value")
    exact = reference_attention(spec, every, outputs=outputs)
    session = open_session(attention_model(spec, every, outputs))
    values = {name: to_ort(tensor) for name, tensor in every.items()}
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("output")
    binding.bind_ortvalue_output("present_key", values["past_key"])
    binding.bind_ortvalue_output("present_value", values["past_value"])
    session.run_with_iobinding(binding)
    output = torch.from_numpy(binding.get_outputs()[0].numpy())
    torch.testing.assert_close(output.double(), exact["output"], rtol=1e-5, atol=1e-5)
    grown = torch.from_numpy(values["past_key"].numpy())
    torch.testing.assert_close(grown.double(), exact["present_key"], rtol=1e-5, atol=1e-5)
    assert torch.equal(grown[:, :, :6], cache["past_key"][:, :, :6])
