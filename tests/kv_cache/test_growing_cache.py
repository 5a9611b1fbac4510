"""`--kv-cache concat`: what optimum's users know, and the tokens that transformers generates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from cached_models import Growing, left_padded, session, tiny, torch_greedy, torch_logits

import qkexport

BACKENDS = pytest.mark.parametrize("fused", [False, True], ids=["stock", "fused"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("growing")


@pytest.fixture(scope="module", params=["qwen3", "gemma3_text", "olmo2"])
def converted(folder: Path, request: pytest.FixtureRequest) -> tuple[Any, Path]:
    torch.set_num_threads(1)
    model, path = tiny(request.param), folder / f"{request.param}.onnx"
    result = qkexport.convert(model, path, kv_cache="concat", require_fused="all")
    assert result, result.to_dict()
    assert result.fused == model.config.num_hidden_layers
    return model, path


def test_names_and_axes_are_those_of_optimum(converted: tuple[Any, Path]) -> None:
    model, path = converted
    graph = onnx.load(path).graph
    layers = range(model.config.num_hidden_layers)
    pasts = [f"past_key_values.{i}.{half}" for i in layers for half in ("key", "value")]
    own = ["input_ids", "attention_mask", "position_ids"]
    assert [value.name for value in graph.input] == [*own, *pasts]
    presents = [f"present.{i}.{half}" for i in layers for half in ("key", "value")]
    assert [value.name for value in graph.output] == ["logits", *presents]
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in (*graph.input, *graph.output)
    }
    assert shapes["input_ids"] == ["batch_size", "sequence_length"]
    assert shapes[pasts[0]] == ["batch_size", 2, "past_sequence_length", 16]
    total = {"past_sequence_length", "sequence_length"}
    assert set(str(shapes["attention_mask"][1]).split(" + ")) == total
    assert set(str(shapes[presents[0]][2]).split(" + ")) == total


def test_every_attention_carries_its_cache_itself(converted: tuple[Any, Path]) -> None:
    graph = onnx.load(converted[1]).graph
    nodes = [node for node in graph.node if node.op_type == "QKNormAttention"]
    inputs = {value.name for value in graph.input}
    outputs = {value.name for value in graph.output}
    for node in nodes:
        assert set(node.output[1:]) <= outputs
        assert set(node.input[12:14]) <= inputs
    assert not any(node.op_type in ("Softmax", "Attention") for node in graph.node)


@BACKENDS
def test_a_padded_batch_generates_what_transformers_generates(
    converted: tuple[Any, Path], fused: bool
) -> None:
    model, path = converted
    ids, mask = left_padded((7, 3, 5))
    expected = torch_greedy(model, ids, mask, 12)
    state = Growing.empty(session(path, fused=fused), 3)
    logits = state.step(ids, mask)
    found = [logits[:, -1].argmax(-1)]
    for _ in range(11):
        found.append(state.step(found[-1][:, None])[:, -1].argmax(-1))
    np.testing.assert_array_equal(np.stack(found, axis=1), expected)


@BACKENDS
@pytest.mark.parametrize("pieces", [(1, 1, 1), (7, 1, 1), (4, 5), (9,)])
def test_a_sequence_may_come_in_any_pieces(
    converted: tuple[Any, Path], pieces: tuple[int, ...], fused: bool
) -> None:
    model, path = converted
    ids = np.random.default_rng(1).integers(3, 64, (1, sum(pieces)))
    parts = np.split(ids, np.cumsum(pieces)[:-1], axis=1)
    state = Growing.empty(session(path, fused=fused), 1)
    found = np.concatenate([state.step(part) for part in parts], axis=1)
    np.testing.assert_allclose(found, torch_logits(model, parts), atol=2e-4)


@BACKENDS
def test_padding_may_stand_behind_a_prompt_too(converted: tuple[Any, Path], fused: bool) -> None:
    """The mask then has a hole before the generated tokens."""
    model, path = converted
    ids = np.random.default_rng(2).integers(3, 64, (2, 6))
    mask = np.array([[1] * 6, [1, 1, 1, 0, 0, 0]])
    state = Growing.empty(session(path, fused=fused), 2)
    state.step(ids, mask)
    found = state.step(np.array([[9], [9]]))[1, 0]
    window = model.config.sliding_window if model.config.model_type == "gemma3_text" else None
    if window is not None:
        return  # a window counts the holes; right padding and windows do not go together
    alone = np.concatenate([ids[1:, :3], [[9]]], axis=1)
    np.testing.assert_allclose(found, torch_logits(model, [alone])[0, -1], atol=2e-4)


def test_swapped_pasts_are_noticed(converted: tuple[Any, Path]) -> None:
    """The comparison itself: key and value of one layer exchanged give other tokens."""
    model, path = converted
    ids = np.random.default_rng(3).integers(3, 64, (1, 6))
    state = Growing.empty(session(path, fused=False), 1)
    state.step(ids[:, :5])
    key, value = "past_key_values.0.key", "past_key_values.0.value"
    state.kept[key], state.kept[value] = state.kept[value], state.kept[key]
    found = state.step(ids[:, 5:])
    assert np.abs(found - torch_logits(model, [ids])[:, 5:]).max() > 0.05


@pytest.mark.parametrize("form", ["native", "fused"])
def test_other_forms_are_made_from_the_portable_one(
    converted: tuple[Any, Path], form: str, tmp_path: Path
) -> None:
    model, path = converted
    other = tmp_path / "other.onnx"
    assert qkexport.convert(path, other, form=form)
    ids = np.random.default_rng(4).integers(3, 64, (2, 6))
    parts = np.split(ids, [5], axis=1)
    state = Growing.empty(session(other, fused=form == "fused"), 2)
    found = np.concatenate([state.step(part) for part in parts], axis=1)
    np.testing.assert_allclose(found, torch_logits(model, parts), atol=2e-4)
