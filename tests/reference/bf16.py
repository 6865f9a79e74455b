"""Writes one-layer BF16 checkpoints in the shapes of popular models, with the results of `transformers`.

They are too large for the repository: the argument is the output folder, and the test `bf16` reads it from TABLA_BF16.
For each model:

    NAME/hf/          config.json, model.safetensors (BF16), tokenizer
    NAME/f32.npy      float32 [1, 32, dim]: the residual stream after the layer, computed in float32 on the BF16 weights
    NAME/bf16.npy     the same computed in bfloat16, as `transformers` runs such files
    NAME/tokens.json  32 ids

Weights have the initialization of `transformers` (normal, standard deviation 0.02). The output projections of a layer are
divided by the square root of twice the number of layers, as in training. Norm weights differ from 1; the vocabulary is small.
"""
import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForCausalLM, Gemma3TextConfig, LlamaConfig, Qwen3Config

from common import byte_level_tokenizer, gemma_tokenizer, random_tokens

VOCAB, TOKENS, SEED = 288, 32, 1
LAYERS = {"llama": 16, "qwen3": 28, "gemma3": 26}  # of the models whose shapes these are
SHARED = {"vocab_size": VOCAB, "num_hidden_layers": 1, "tie_word_embeddings": True, "dtype": torch.bfloat16}
LLAMA3 = {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
MODELS = {
    # Llama 3.2 1B
    "llama": LlamaConfig(hidden_size=2048, intermediate_size=8192, num_attention_heads=32, num_key_value_heads=8, rms_norm_eps=1e-5,
                         max_position_embeddings=131072, rope_parameters={"rope_theta": 500000.0, **LLAMA3}, **SHARED),
    # Qwen3 0.6B
    "qwen3": Qwen3Config(hidden_size=1024, intermediate_size=3072, num_attention_heads=16, num_key_value_heads=8, head_dim=128,
                         rms_norm_eps=1e-6, max_position_embeddings=40960,
                         rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, **SHARED),
    # Gemma 3 1B
    "gemma3": Gemma3TextConfig(hidden_size=1152, intermediate_size=6912, num_attention_heads=4, num_key_value_heads=1, head_dim=256,
                               query_pre_attn_scalar=256, sliding_window=512, max_position_embeddings=32768, rms_norm_eps=1e-6, **SHARED),
}


def layer_output(model, tokens):
    """Returns the output of the layer, float32 [1, tokens, dim]."""
    outputs = []
    keep = lambda module, args, out: outputs.append(out if torch.is_tensor(out) else out[0])
    hook = model.model.layers[0].register_forward_hook(keep)
    with torch.inference_mode():
        model(torch.tensor([tokens]), use_cache=False)
    hook.remove()
    return outputs[0].float().numpy()


def write(name, config, out):
    torch.manual_seed(SEED)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    with torch.no_grad():
        for key, weight in model.named_parameters():
            if "norm" in key:
                weight.add_(0.1 * torch.randn(weight.shape))
            elif key.endswith(("o_proj.weight", "down_proj.weight")):
                weight.div_((2 * LAYERS[name]) ** 0.5)
    model.to(torch.bfloat16).save_pretrained(out / "hf")
    (gemma_tokenizer if name == "gemma3" else byte_level_tokenizer)(VOCAB).save_pretrained(out / "hf")
    tokens = random_tokens(VOCAB, SEED, TOKENS)
    (out / "tokens.json").write_text(json.dumps(tokens) + "\n")
    rows = {}
    for dtype in ("float32", "bfloat16"):
        read = AutoModelForCausalLM.from_pretrained(out / "hf", dtype=getattr(torch, dtype), attn_implementation="eager").eval()
        rows[dtype] = layer_output(read, tokens)
    np.save(out / "f32.npy", rows["float32"])
    np.save(out / "bf16.npy", rows["bfloat16"])
    gap = np.abs(rows["float32"] - rows["bfloat16"])
    print(f"{name}: largest {np.abs(rows['float32']).max():.3f}; bfloat16 against float32: max {gap.max():.2e} mean {gap.mean():.2e}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: bf16.py FOLDER (writes about 300 MB)")
    for name, config in MODELS.items():
        folder = Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        write(name, config, folder)
