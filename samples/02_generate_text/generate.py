"""Greedy generation from MODEL.onnx; PyTorch says whether every token is its own choice.

python generate.py MODEL.onnx [CHECKPOINT [PROMPT]]
"""

import sys
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from causal_lm import qwen3
from transformers import AutoModelForCausalLM, AutoTokenizer

import qkexport

COUNT = 64


def empty_cache(session: ort.InferenceSession, rows: int) -> dict[str, ort.OrtValue]:
    cache = {}
    for item in session.get_inputs():
        if item.name.startswith("past_key_values."):
            shape, half = (1, item.shape[1], rows, item.shape[3]), "float16" in item.type
            zeros = np.zeros(shape, np.float16 if half else np.float32)
            cache[item.name] = ort.OrtValue.ortvalue_from_numpy(zeros, "cpu", 0)
    return cache


def generate(session: ort.InferenceSession, prompt: Any) -> Any:
    static = "kv_lengths" in [item.name for item in session.get_inputs()]
    cache = empty_cache(session, prompt.shape[1] + COUNT if static else 0)
    tokens, start = prompt, 0
    for _ in range(COUNT):
        end, binding = tokens.shape[1], session.io_binding()
        binding.bind_cpu_input("input_ids", np.ascontiguousarray(tokens[:, start:]))
        binding.bind_cpu_input("position_ids", np.arange(start, end)[None])
        name, seen = ("kv_lengths", [end]) if static else ("attention_mask", [[1] * end])
        binding.bind_cpu_input(name, np.array(seen))
        binding.bind_output("logits")
        for past, value in cache.items():
            present = past.replace("past_key_values", "present")
            binding.bind_ortvalue_input(past, value)
            if static:  # in place: new rows are written into the buffer that was read
                binding.bind_ortvalue_output(present, value)
            else:
                binding.bind_output(present)
        session.run_with_iobinding(binding)
        logits, *kept = binding.get_outputs()
        cache = cache if static else dict(zip(cache, kept, strict=True))
        tokens, start = np.append(tokens, logits.numpy()[:, -1:].argmax(-1), axis=1), end
    return tokens


def main(path: str, checkpoint: str = "", text: str = "") -> None:
    auto = AutoModelForCausalLM
    model = auto.from_pretrained(checkpoint, dtype=torch.float32) if checkpoint else qwen3()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint) if text else None
    prompt = tokenizer(text)["input_ids"] if tokenizer else [5, 11, 59, 97, 257]
    options = ort.SessionOptions()
    qkexport.register_ort(options)  # the fused kernel; without this line the function bodies run
    session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    tokens = generate(session, np.array([prompt]))
    with torch.no_grad():
        logits = model(torch.from_numpy(tokens[:, :-1])).logits[0, -COUNT:]
    chosen = logits.gather(1, torch.from_numpy(tokens[0, -COUNT:, None]))
    behind = logits.max(dim=1, keepdim=True).values - chosen  # 0 where PyTorch chooses the same
    print(tokenizer.decode(tokens[0]) if tokenizer else tokens[0, -COUNT:].tolist())
    print(f"{COUNT} tokens, {int((behind == 0).sum())} as PyTorch chooses them")
    sys.exit(int(behind.max() > 1e-3 * logits.std()))  # a near tie may fall either way


if __name__ == "__main__":
    main(*sys.argv[1:])
