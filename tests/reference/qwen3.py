"""Qwen 3 goldens: norms on Q and K, head dimension larger than hidden / heads, nine heads with three KV heads, tied.

Run: python qwen3.py
"""
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from common import byte_level, check, find_seed, logits, save, write

VOCAB = 291


def build():
    return Qwen3ForCausalLM(Qwen3Config(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=92, num_hidden_layers=2, num_attention_heads=9,
        num_key_value_heads=3, head_dim=16, max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, attn_implementation="eager"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    seed, model, tokens, out, lead = find_seed(build, VOCAB)
    answers = logits(model, tokens)
    write(model, "qwen3", "qwen3", byte_level)
    save("qwen3", tokens, answers, greedy=out, min_margin=lead, seed=seed)
    check("qwen3", tokens, answers)
