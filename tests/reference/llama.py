"""Llama goldens: odd sizes, five heads with one KV head, llama3 RoPE scaling, tied embeddings.

`llama` stores the scaling as the tensor rope_freqs.weight, `llama_scaling` as metadata keys; both
have the same weights and must give the same logits. Run: python llama.py
"""
import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from common import check, find_seed, llama3_factors, logits, save, sentencepiece, write

VOCAB = 288
SCALING = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}


def build():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=60, intermediate_size=108, num_hidden_layers=2, num_attention_heads=5,
        num_key_value_heads=1, head_dim=12, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "llama3", "rope_theta": 10000.0, **SCALING}, attn_implementation="eager"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    seed, model, tokens, out, lead = find_seed(build, VOCAB)
    answers = logits(model, tokens)
    factors = llama3_factors(12, 10000.0, *SCALING.values()).astype(np.float32)
    # The test requires a frequency in each of the three ranges.
    assert factors[0] == 1 and 1 < factors[1] < 8 and factors[-1] == 8, factors
    write(model, "llama", "llama", sentencepiece, extra={"rope_freqs.weight": factors})
    write(model, "llama", "llama_scaling", sentencepiece, scaling=SCALING)
    save("llama", tokens, answers, greedy=out, min_margin=lead, seed=seed)
    check("llama", tokens, answers)
    check("llama_scaling", tokens, answers)
