"""A small Qwen3 with random weights; `python causal_lm.py FOLDER` saves it as a checkpoint."""

import sys

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM


def qwen3() -> Qwen3ForCausalLM:
    torch.manual_seed(59)  # the same weights at every call
    config = Qwen3Config(
        vocab_size=1000, hidden_size=128, intermediate_size=256, num_hidden_layers=2,
        num_attention_heads=8, num_key_value_heads=4, head_dim=32, tie_word_embeddings=True,
        initializer_range=0.2,  # logits far enough apart to have an opinion
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    model.eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:  # gains of one would hide a lost gain
            torch.nn.init.uniform_(parameter, 0.5, 1.5)
    return model


if __name__ == "__main__":
    qwen3().save_pretrained(sys.argv[1])
