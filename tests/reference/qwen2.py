"""Qwen 2 goldens: Q/K/V biases, six heads with two KV heads, untied lm_head.

Run: python qwen2.py
"""
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from common import byte_level, check, find_seed, logits, save, write

VOCAB = 307


def build():
    return Qwen2ForCausalLM(Qwen2Config(
        vocab_size=VOCAB, hidden_size=48, intermediate_size=116, num_hidden_layers=3, num_attention_heads=6,
        num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, attn_implementation="eager"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    seed, model, tokens, out, lead = find_seed(build, VOCAB)
    answers = logits(model, tokens)
    write(model, "qwen2", "qwen2", byte_level)
    save("qwen2", tokens, answers, greedy=out, min_margin=lead, seed=seed)
    check("qwen2", tokens, answers)
