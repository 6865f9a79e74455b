"""BitNet b1.58 of 1bitLLM: SiLU, and a GGUF of arch `bitnet` with the ternary values as floats.

llama.cpp's converter rounds the master weights, which have the names of 1bitLLM's code; Tabla does not read them, so there is
no hf/. The weights are float, so activations are not quantized. RoPE by halves; tied."""
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import BitNetConfig, BitNetForCausalLM

from arch import ternary
from arch.common import PROMPT, ROOT, VOCAB, common, converted, find_seed, gguf, logits
from common import sentencepiece

NAMES = {"self_attn.attn_sub_norm": "self_attn.inner_attn_ln", "mlp.ffn_sub_norm": "mlp.ffn_layernorm"}
masters = {}


def config(**sizes):
    return BitNetConfig(vocab_size=VOCAB, max_position_embeddings=256, rms_norm_eps=1e-5, hidden_act="silu", tie_word_embeddings=True,
                        bos_token_id=1, eos_token_id=2, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
                        attn_implementation="eager", **sizes)


def rounded_masters(model):
    """Rounds the weights of all layers like the converter, and stores the original ones in `masters`."""
    for name, layer in ternary.layers(model):
        w = masters[f"{name}.weight"] = layer.weight.data.bfloat16().float()
        inverse = 1 / w.abs().mean()
        layer.weight.data = (w * inverse).round().clamp(-1, 1) / inverse


def convert(model, masters, out, files):
    """Writes the GGUF files of a model, from a folder with its master weights in the format of 1bitLLM."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / out.name / "hf"
        folder.mkdir(parents=True)
        tensors = {name: masters.get(name, t) for name, t in model.state_dict().items() if not name.endswith(("weight_scale", "lm_head.weight"))}
        for ours, theirs in NAMES.items():
            tensors = {name.replace(ours, theirs): t for name, t in tensors.items()}
        save_file({name: t.bfloat16().contiguous() for name, t in tensors.items()}, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(model.config.to_dict() | {"architectures": ["BitnetForCausalLM"]}))
        for file, kind in files.items():
            converted(folder, out / file, sentencepiece, VOCAB, kind=kind)


def check(model, file, weight_of):
    """Checks that the weights of the GGUF equal those of the model."""
    tensors = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(file).tensors}
    for name, layer in ternary.layers(model):
        _, _, block, inner = name.split(".", 3)
        if not np.array_equal(tensors[f"blk.{block}.{common.LAYER[inner]}.weight"], weight_of(layer).numpy()):
            raise SystemExit(f"{file}: {name} differs from the model")


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = ROOT / "bitnet_silu"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    sizes = dict(hidden_size=60, intermediate_size=76, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3)
    seed, model, tokens, continuation, lead = find_seed(lambda: BitNetForCausalLM(config(**sizes)), VOCAB, adjust=rounded_masters)
    convert(model, masters, out, {"model.gguf": gguf.LlamaFileType.MOSTLY_BF16})
    check(model, out / "model.gguf", lambda layer: layer.weight.data)
    ternary.record(out, model, tokens, logits(model, tokens), {"greedy": continuation, "lead": lead, "seed": seed})
