"""`--kv-cache static`: buffers of fixed size, lengths that differ, rows written in place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from cached_models import Buffers, left_padded, session, tiny, torch_greedy, torch_logits

import qkexport

BACKENDS = pytest.mark.parametrize("fused", [False, True], ids=["stock", "fused"])
ROWS = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("static")


@pytest.fixture(
    scope="module",
    params=["qwen3", "gemma3_text", pytest.param("olmo2", marks=pytest.mark.nightly)],
)
def converted(folder: Path, request: pytest.FixtureRequest) -> tuple[Any, Path]:
    torch.set_num_threads(1)
    model, path = tiny(request.param), folder / f"{request.param}.onnx"
    result = qkexport.convert(model, path, kv_cache="static", require_fused="all")
    assert result, result.to_dict()
    assert result.fused == model.config.num_hidden_layers
    return model, path


def test_the_file_takes_lengths_and_no_mask(converted: tuple[Any, Path]) -> None:
    graph = onnx.load(converted[1]).graph
    names = [value.name for value in graph.input]
    assert names[:4] == ["input_ids", "position_ids", "kv_lengths", "past_key_values.0.key"]
    nodes = [node for node in graph.node if node.op_type == "QKNormAttention"]
    for node in nodes:
        assert node.input[14] == "kv_lengths"
        assert node.input[10] == ""  # what is visible follows from the lengths
    operators = {node.op_type for node in graph.node}
    assert operators.isdisjoint({"TensorScatter", "Attention", "Softmax", "LessOrEqual"})


@BACKENDS
def test_prompts_of_any_length_generate_what_transformers_generates(
    converted: tuple[Any, Path], fused: bool
) -> None:
    """Padding in front of a prompt is written nowhere."""
    model, path = converted
    ids, mask = left_padded((7, 3, 5))
    expected = torch_greedy(model, ids, mask, 12)
    state = Buffers.empty(session(path, fused=fused), 3, ROWS)
    found = [state.step(ids, mask.sum(axis=1))[:, -1].argmax(-1)]
    for _ in range(11):
        found.append(state.step(found[-1][:, None])[:, -1].argmax(-1))
    np.testing.assert_array_equal(np.stack(found, axis=1), expected)


@BACKENDS
def test_padding_behind_a_prompt_is_overwritten(converted: tuple[Any, Path], fused: bool) -> None:
    model, path = converted
    ids = np.random.default_rng(2).integers(3, 64, (2, 6))
    state = Buffers.empty(session(path, fused=fused), 2, ROWS)
    state.step(ids)
    state.lengths = np.array([6, 3])
    found = state.step(np.array([[9], [9]]))[1, 0]
    alone = np.concatenate([ids[1:, :3], [[9]]], axis=1)
    np.testing.assert_allclose(found, torch_logits(model, [alone])[0, -1], atol=2e-4)


@BACKENDS
@pytest.mark.parametrize("pieces", [(1, 1, 1), (7, 1, 1), (4, 5)])
@pytest.mark.parametrize("rows", [9, 17])
def test_a_sequence_may_come_in_any_pieces_and_fill_the_buffer(
    converted: tuple[Any, Path], pieces: tuple[int, ...], rows: int, fused: bool
) -> None:
    model, path = converted
    ids = np.random.default_rng(1).integers(3, 64, (1, sum(pieces)))
    parts = np.split(ids, np.cumsum(pieces)[:-1], axis=1)
    state = Buffers.empty(session(path, fused=fused), 1, rows)
    found = np.concatenate([state.step(part) for part in parts], axis=1)
    np.testing.assert_allclose(found, torch_logits(model, parts), atol=2e-4)


@BACKENDS
def test_buffers_may_be_input_and_output_at_once(converted: tuple[Any, Path], fused: bool) -> None:
    model, path = converted
    ids = np.random.default_rng(5).integers(3, 64, (2, 8))
    loaded = session(path, fused=fused)
    state = Buffers.empty(loaded, 2, ROWS)
    values = {n: ort.OrtValue.ortvalue_from_numpy(x, "cpu", 0) for n, x in state.kept.items()}
    found = []
    for start, end in ((0, 5), (5, 6), (6, 8)):
        binding = loaded.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
            binding.bind_ortvalue_output(name.replace("past_key_values", "present"), value)
        binding.bind_output("logits")
        binding.bind_cpu_input("input_ids", ids[:, start:end].copy())
        binding.bind_cpu_input("position_ids", np.arange(start, end)[None].repeat(2, axis=0))
        binding.bind_cpu_input("kv_lengths", np.full(2, end))
        loaded.run_with_iobinding(binding)
        found.append(binding.get_outputs()[-1].numpy())
    expected = torch_logits(model, [ids])
    np.testing.assert_allclose(np.concatenate(found, axis=1), expected, atol=2e-4)
