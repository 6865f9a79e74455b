#!/usr/bin/env python3
"""Encoder states and logits of small Whisper models, as transformers computes them in f32: writes tests/golden/whisper_80.npy
and whisper_128.npy. Each is one row of numbers: the states [context, dim], the logits after each token of every 97th id, and
the most likely id after each token.

    pip install numpy torch transformers
    python3 tests/reference/whisper.py

Weights and spectrogram are random numbers that tests/it/speech.rs computes too.
"""
from pathlib import Path

import numpy as np
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
CONTEXT, TOKENS, EVERY = 40, 12, 97
A, C = np.uint64(6364136223846793005), np.uint64(1442695040888963407)
PARTS = {
    "self_attn_layer_norm": "attn_ln", "encoder_attn_layer_norm": "cross_attn_ln", "final_layer_norm": "mlp_ln",
    "self_attn.": "attn.", "encoder_attn.": "cross_attn.", "q_proj": "query", "k_proj": "key", "v_proj": "value", "out_proj": "out",
    "fc1": "mlp.0", "fc2": "mlp.2", "layers.": "blocks.", "encoder.layer_norm": "encoder.ln_post", "decoder.layer_norm": "decoder.ln",
    "embed_positions.weight": "positional_embedding", "embed_tokens": "token_embedding", "model.": "",
}


def numbers(name, count):
    """Numbers from -1 to 1 of a linear congruential generator, seeded by a hash of the name."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = (seed ^ byte) * 0x100000001B3 % 2**64
    with np.errstate(over="ignore"):
        powers = np.cumprod(np.full(count, A))
        sums = np.cumsum(np.concatenate([[np.uint64(1)], powers[:-1]]))
        words = powers * np.uint64(seed | 1) + sums * C
    return (words >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)


def tensor(name, shape):
    """Weights near 1 for norms, smaller ones for matrices."""
    x = numbers(name, int(np.prod(shape))).reshape(shape)
    if "ln" in name:
        return np.float32(1) + np.float32(0.25) * x if name.endswith("weight") else np.float32(0.25) * x
    return np.float32(0.5 if "positional" in name else 0.125) * x


for mels, vocab, dim, heads in ((80, 51864, 96, 3), (128, 51866, 80, 5)):
    config = WhisperConfig(
        vocab_size=vocab, num_mel_bins=mels, d_model=dim, encoder_layers=2, decoder_layers=3, encoder_attention_heads=heads,
        decoder_attention_heads=heads, encoder_ffn_dim=4 * dim, decoder_ffn_dim=4 * dim, max_source_positions=CONTEXT,
        max_target_positions=64, attn_implementation="eager")
    model = WhisperForConditionalGeneration(config).eval()
    for hf, weight in model.model.named_parameters():
        name = "model." + hf
        for old, new in PARTS.items():
            name = name.replace(old, new)
        weight.data = torch.from_numpy(tensor(name, tuple(weight.shape)))
    mel = torch.from_numpy(numbers("mel", 2 * CONTEXT * mels).reshape(1, 2 * CONTEXT, mels).transpose(0, 2, 1).copy())
    with torch.no_grad():
        states = model.model.encoder(mel).last_hidden_state
        ids = [vocab - 1607]
        for _ in range(TOKENS):
            out = model.model.decoder(torch.tensor([ids]), encoder_hidden_states=states).last_hidden_state
            logits = (out @ model.model.decoder.embed_tokens.weight.T)[0]
            ids.append(int(logits[-1].argmax()))
    print(ids, logits.abs().max())
    top = logits.topk(2).values
    print("smallest margin", float((top[:, 0] - top[:, 1]).min()))
    parts = [states.flatten(), logits[:, ::EVERY].flatten(), torch.tensor(ids, dtype=torch.float32)]
    np.save(GOLDEN / f"whisper_{mels}.npy", torch.cat(parts).numpy())
