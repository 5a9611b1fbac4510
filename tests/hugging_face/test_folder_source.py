"""Local Hugging Face folders: what is read, in which type, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
)
from transformers.utils import logging as transformers_logging
from zoo.family import randomized
from zoo.language import causal_lm

import qkexport
from qkexport.errors import LoadError, UnsupportedModelError, UsageError
from qkexport.load import TorchSource, load_source

transformers_logging.disable_progress_bar()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("qwen3")
    torch.manual_seed(0)
    model: Any = causal_lm("qwen3", "sdpa", num_hidden_layers=1, tie_word_embeddings=True).module
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(saved, tmp_path / "model")


def _load(path: Path, **options: Any) -> TorchSource:
    source = load_source(path, **options)
    assert isinstance(source, TorchSource)
    return source


def _types(source: TorchSource) -> set[torch.dtype]:
    return {x.dtype for x in source.module.parameters()}


def _change(path: Path, **fields: Any) -> None:
    """Sets fields of config.json; None takes one out."""
    config = json.loads((path / "config.json").read_text()) | fields
    kept = {name: value for name, value in config.items() if value is not None}
    (path / "config.json").write_text(json.dumps(kept))


def test_weights_keep_the_type_of_the_checkpoint_unless_another_is_asked_for(folder: Path) -> None:
    assert _types(_load(folder)) == {torch.bfloat16}
    assert _types(_load(folder, dtype="float32")) == {torch.float32}


def test_tables_that_a_model_derives_stay_as_fine_as_they_were_loaded(folder: Path) -> None:
    from qkexport.example_inputs import complete_source

    source = complete_source(_load(folder, dtype="float16"), {}, (), torch.float16)
    tables = [x for name, x in source.module.named_buffers() if "inv_freq" in name]
    assert {x.dtype for x in tables} == {torch.float32}


def test_a_causal_lm_becomes_a_model_with_optimums_names(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    result = qkexport.convert(str(folder), path, dtype="float32", require_fused="all")
    assert result, result.to_dict()
    graph = onnx.load(path).graph
    assert [x.name for x in graph.input] == ["input_ids", "attention_mask", "position_ids"]
    assert [x.name for x in graph.output] == ["logits"]
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    ids = np.arange(15).reshape(3, 5)
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    (found,) = session.run(None, {**feeds, "position_ids": np.arange(5)[None].repeat(3, axis=0)})
    with torch.no_grad():
        (expected,) = _load(folder, dtype="float32").module(
            torch.from_numpy(ids), torch.ones(3, 5, dtype=torch.int64)
        )
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def test_sharded_weights_are_one_model(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    names = sorted(weights)
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, own in parts.items():
        save_file({name: weights[name] for name in own}, folder / file, {"format": "pt"})
    index = {name: file for file, own in parts.items() for name in own}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index})
    )
    (folder / "model.safetensors").unlink()
    assert _types(_load(folder)) == {torch.bfloat16}
    (folder / "b.safetensors").unlink()
    with pytest.raises(LoadError, match=r"must hold all its weights, got no b\.safetensors"):
        load_source(folder)


def test_pickled_weights_need_the_flag(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    assert load_source(folder)  # safetensors are there and win
    (folder / "model.safetensors").unlink()
    with pytest.raises(LoadError, match="has pickled weights only") as caught:
        load_source(folder)
    assert "--allow-pickle" in str(caught.value)
    assert _types(_load(folder, allow_pickle=True)) == {torch.bfloat16}


def _without_config(path: Path) -> None:
    (path / "config.json").unlink()


def _of_a_pipeline(path: Path) -> None:
    (path / "config.json").rename(path / "model_index.json")


def _damaged_config(path: Path) -> None:
    (path / "config.json").write_text("{")


def _unknown_type(path: Path) -> None:
    _change(path, model_type="qwen33")


def _own_code(path: Path) -> None:
    _change(path, model_type="mine", auto_map={"AutoModelForCausalLM": "code.Mine"})
    (path / "code.py").write_text("raise SystemExit('this was run')")


def _diffusers(path: Path) -> None:
    _change(path, model_type=None, _class_name="FluxTransformer2DModel")


def _no_architecture(path: Path) -> None:
    _change(path, architectures=None)


def _other_task(path: Path) -> None:
    _change(path, architectures=["Qwen3ForRetrieval"])


def _two_stacks(path: Path) -> None:
    _change(path, architectures=["T5ForConditionalGeneration"])


def _no_weights(path: Path) -> None:
    (path / "model.safetensors").unlink()


def _pointer(path: Path) -> None:
    (path / "model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")


def _cut_off(path: Path) -> None:
    data = (path / "model.safetensors").read_bytes()
    (path / "model.safetensors").write_bytes(data[: len(data) // 2])


def _lost_weight(path: Path) -> None:
    weights = load_file(path / "model.safetensors")
    del weights["model.layers.0.self_attn.q_norm.weight"]
    save_file(weights, path / "model.safetensors", {"format": "pt"})


def _wrong_width(path: Path) -> None:
    _change(path, intermediate_size=48)


@pytest.mark.parametrize(
    ("damage", "message", "advice"),
    [
        (_without_config, "must be a file or a Hugging Face folder", "config.json"),
        (_of_a_pipeline, "must be a file or a Hugging Face folder", "its transformer"),
        (_damaged_config, "must be JSON", "again"),
        (_unknown_type, "must be of a family that transformers knows, got 'qwen33'", "'qwen3'"),
        (_own_code, "must not bring its own code", "--trust-remote-code"),
        (_diffusers, "must be a model of transformers, got FluxTransformer2DModel", "factory"),
        (_no_architecture, "must name its architectures", "architectures"),
        (_other_task, "known inputs, got Qwen3ForRetrieval", "factory"),
        (_two_stacks, "known inputs, got T5ForConditionalGeneration", "factory"),
        (_no_weights, "must hold its weights, got no model.safetensors", "download"),
        (_pointer, "got a Git LFS pointer", "git lfs pull"),
        (_cut_off, "must be loadable by transformers, got SafetensorError", "download"),
        (_lost_weight, "must hold every weight, got 1 missing: .*q_norm", "incomplete"),
        (_wrong_width, "must ", "another model|download"),
    ],
)
def test_a_folder_that_cannot_be_trusted_or_read_says_why(
    folder: Path, damage: Callable[[Path], None], message: str, advice: str
) -> None:
    damage(folder)
    with pytest.raises(LoadError, match=message) as caught:
        load_source(folder)
    assert caught.value.hint is not None
    assert any(part in caught.value.hint for part in advice.split("|"))


def test_code_of_a_folder_runs_when_it_is_asked_for(folder: Path) -> None:
    _own_code(folder)
    with pytest.raises((LoadError, SystemExit), match=r"must be loadable|this was run"):
        load_source(folder, trust_remote_code=True)


def test_a_text_encoder_gets_the_inputs_it_declares(tmp_path: Path) -> None:
    config = AutoConfig.for_model(
        "bert", vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16,
    )  # fmt: skip
    AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path)
    source = _load(tmp_path)
    assert list(source.kwargs) == ["input_ids", "attention_mask", "token_type_ids"]
    assert source.names is not None
    assert source.names.outputs == ("logits",)
    with pytest.raises(UsageError, match="needs a causal LM"):
        qkexport.convert(tmp_path, tmp_path / "m.onnx", kv_cache="concat")


def test_a_model_of_images_and_text_is_read_as_the_language_model_it_holds(tmp_path: Path) -> None:
    text = {
        "vocab_size": 64, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
    }  # fmt: skip
    vision = {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
    }  # fmt: skip
    config = AutoConfig.for_model(
        "gemma3", text_config=text, vision_config=vision, mm_tokens_per_image=4,
        image_token_id=60, boi_token_id=61, eoi_token_id=62,
    )  # fmt: skip
    model: Any = AutoModelForCausalLM.from_config(config)
    assert type(model).__name__ == "Gemma3ForConditionalGeneration"
    model.save_pretrained(tmp_path)
    source = _load(tmp_path)
    assert list(source.kwargs) == ["input_ids", "attention_mask", "position_ids"]
    with torch.no_grad():
        (logits,) = source.module(**source.kwargs)
    assert logits.shape == (2, 8, 64)


def test_an_image_classifier_takes_pixels(tmp_path: Path) -> None:
    config = AutoConfig.for_model(
        "swinv2", image_size=8, patch_size=1, embed_dim=8, depths=[1], num_heads=[2],
        window_size=4, num_labels=3,
    )  # fmt: skip
    model = randomized(AutoModelForImageClassification.from_config(config))
    model.save_pretrained(tmp_path)  # type: ignore[operator]
    path = tmp_path / "m.onnx"
    result = qkexport.convert(tmp_path, path, require_fused="all")
    assert result, result.to_dict()
    graph = onnx.load(path).graph
    assert [x.name for x in graph.input] == ["pixel_values"]
    assert [x.name for x in graph.output] == ["logits"]


def test_other_states_than_keys_and_values_have_no_cache_here(tmp_path: Path) -> None:
    model: Any = causal_lm(
        "lfm2", "sdpa", num_hidden_layers=2, layer_types=["conv", "full_attention"]
    ).module
    with pytest.raises(UnsupportedModelError, match="keys and values only, got layers of conv"):
        qkexport.convert(model, tmp_path / "m.onnx", kv_cache="concat")
