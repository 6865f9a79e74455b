"""LoRA adapters of the golden checkpoints llama, gpt2 and phi3: writes ../golden/lora/NAME/.

    adapter_config.json, adapter_model.safetensors     random adapter in the format of `peft`
    adapter.gguf       the same from llama.cpp's converter, in f32 (llama and phi3)
    logits.npy         float32 [16, vocab]: one forward pass of `peft` over the first tokens of ../golden/arch/NAME

The adapter of llama has ranks of single modules, that of gpt2 alphas of single modules and the scale alpha / sqrt(r),
that of phi3 fused modules. llama.cpp's converter ignores the alphas and the scale. The script fails if one of the modules does not change the logits. Run from `tests/reference`; LLAMA_CPP is a
source tree of llama.cpp. Requires torch, transformers, peft, numpy:

    LLAMA_CPP=... python lora.py
"""
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
LLAMA_CPP = Path(os.environ["LLAMA_CPP"])
POSITIONS = 16
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

ADAPTERS = {
    "llama": dict(r=4, lora_alpha=6, target_modules=ALL, rank_pattern={"layers.1.mlp.down_proj": 3, "k_proj": 2}),
    "gpt2": dict(r=4, lora_alpha=3, use_rslora=True, fan_in_fan_out=True, target_modules=["c_attn", "c_proj", "c_fc"],
                 alpha_pattern={r"h\.0\.attn\..*": 2, "c_fc": 9, "c_attn": 5}),
    "phi3": dict(r=3, lora_alpha=4, target_modules=["qkv_proj", "o_proj", "gate_up_proj", "down_proj"]),
}


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def load(base, tokens):
    """Loads a checkpoint. Fixes the RoPE frequencies to those of a pass over all `tokens`: those of LongRoPE depend on its length."""
    model = AutoModelForCausalLM.from_pretrained(base / "hf", dtype=torch.float32, attn_implementation="eager").eval()
    logits(model, tokens)
    for module in model.modules():
        if getattr(module, "rope_type", "") == "longrope":
            module.rope_type = "default"
    return model


def write(name, settings):
    base = GOLDEN / "arch" / name
    all_tokens = json.loads((base / "golden.json").read_text())["tokens"]
    tokens = all_tokens[:POSITIONS]
    model = load(base, all_tokens)
    plain = logits(model, tokens)
    model = get_peft_model(model, LoraConfig(**settings)).eval()
    rng = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for key, p in sorted(model.named_parameters()):
            if "lora_" in key:
                p.copy_((0.6 * torch.randn(p.shape, generator=rng) / p.shape[-1] ** 0.5).bfloat16().float())
    expected = logits(model, tokens)
    for key, p in sorted(model.named_parameters()):
        if "lora_B" in key:
            saved = p.detach().clone()
            p.data.zero_()
            if np.abs(logits(model, tokens) - expected).max() < 1e-3:
                raise SystemExit(f"{name}: {key} does not change the logits")
            p.data.copy_(saved)
    folder = GOLDEN / "lora" / name
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    (folder / "README.md").unlink()
    config = json.loads((folder / "adapter_config.json").read_text())
    config["base_model_name_or_path"] = f"tabla-test-{name}"
    config["target_modules"] = sorted(config["target_modules"])
    (folder / "adapter_config.json").write_text(json.dumps(config, indent=1) + "\n")
    # Of the saved adapter: `peft` sorts the patterns when it saves them, and the first that matches applies.
    expected = logits(PeftModel.from_pretrained(load(base, all_tokens), folder).eval(), tokens)
    np.save(folder / "logits.npy", expected)
    if name != "gpt2":
        # The converter does not map the Conv1D modules of GPT-2.
        subprocess.run([sys.executable, LLAMA_CPP / "convert_lora_to_gguf.py", folder, "--base", base / "hf", "--outtype", "f32",
                        "--outfile", folder / "adapter.gguf"], check=True)
    print(name, "largest change of a logit:", np.abs(expected - plain).max())


for name, settings in ADAPTERS.items():
    write(name, settings)
