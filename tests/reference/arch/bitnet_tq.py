"""The BitNet of `bitnet_silu` with ternary weights in its GGUF, TQ2_0 and TQ1_0, and so with 8-bit activations.

Also from llama.cpp's converter. Blocks have 256 columns and an F16 scale; all blocks of a layer have the same scale."""
import shutil

import torch
from transformers import BitNetForCausalLM

from arch import ternary
from arch.bitnet_silu import check, config, convert
from arch.common import ROOT, VOCAB, gguf, logits, randomise


def build(seed):
    model = BitNetForCausalLM(config(hidden_size=256, intermediate_size=256, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=1))
    # The converter computes the reciprocal of the mean twice.
    return ternary.ternarise(randomise(model, seed), lambda mean: (1 / (1 / mean)).half().float())


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = ROOT / "bitnet_tq"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    seed, model, tokens, continuation, lead = ternary.find_seed(build, VOCAB)
    files = {"model.gguf": gguf.LlamaFileType.MOSTLY_TQ2_0, "model_tq1_0.gguf": gguf.LlamaFileType.MOSTLY_TQ1_0}
    convert(model, {f"{name}.weight": layer.master for name, layer in ternary.layers(model)}, out, files)
    for file in files:
        check(model, out / file, lambda layer: layer.codes.float() * layer.weight_scale)
    ternary.record(out, model, tokens, logits(model, tokens), {
        "greedy": continuation, "lead": lead, "seed": seed, "edge": ternary.distances(model, [tokens]).min().item()})
