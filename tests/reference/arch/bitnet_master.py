"""BitNet b1.58 2B-4T with its master weights in BF16, ternarised when loaded: every weight is divided by the mean of the magnitudes of its
matrix, rounded to -1, 0 or 1, and multiplied by the mean.

`hf/` has no quantization_config; `config_online.json` is the config.json of the published folder, which has `quantization_mode` "online".
No weight is close to the middle of two codes, and no activation either, as in the other ternary models. No GGUF: the format has no masters."""
import json
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import BitNetConfig, BitNetForCausalLM
from transformers.integrations.bitnet import AutoBitLinear

from arch import ternary
from arch.common import ROOT, VOCAB, load, logits, on_hub, randomise, tokenizer_of
from common import byte_level

ONLINE = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online"}
WEIGHT_EDGE = 1e-4


def build(seed):
    model = randomise(BitNetForCausalLM(BitNetConfig(
        vocab_size=VOCAB, hidden_size=60, intermediate_size=84, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        max_position_embeddings=256, rms_norm_eps=1e-5, hidden_act="relu2", tie_word_embeddings=True, bos_token_id=285, eos_token_id=287,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0}, attn_implementation="eager")), seed)
    ternary.round_weights(model)
    for name, old in ternary.layers(model):
        new = AutoBitLinear(old.in_features, old.out_features, bias=False, online_quant=True)
        # Moves weights away from the middle of two codes; the mean hardly changes.
        w = old.weight.detach()
        middle = ((w.abs() / w.abs().mean()) - 0.5).abs() < 0.02
        new.weight = torch.nn.Parameter(torch.where(middle, w * 1.1, w).bfloat16().float(), False)
        model.set_submodule(name, new)
    return model.eval()


def weight_edge(model):
    """Returns the smallest distance of weights to the middle of two codes, in codes."""
    return min(((layer.weight.double().abs() / layer.weight.double().abs().mean()) - 0.5).abs().min().item() for _, layer in ternary.layers(model))


def unrounded(model):
    """Takes the master weights as they are."""
    for _, layer in ternary.layers(model):
        codes = layer.weight / layer.weight.abs().mean()
        layer.online_quant = False
        layer.weight_scale = layer.weight.abs().mean()
        layer.weight = torch.nn.Parameter(codes, False)


def write_config(path, config):
    path.write_text(json.dumps(config, indent=1) + "\n")


torch.set_num_threads(1)
out = ROOT / "bitnet_master"
shutil.rmtree(out, ignore_errors=True)
(out / "hf").mkdir(parents=True)
seed, model, tokens, continuation, lead = ternary.find_seed(build, VOCAB)
answers, edge = logits(model, tokens), weight_edge(model)
assert edge > WEIGHT_EDGE, f"a weight is {edge} from the middle of two codes"
save_file({name: t.to(torch.bfloat16).contiguous() for name, t in model.state_dict().items() if name != "lm_head.weight"}, out / "hf/model.safetensors", metadata={"format": "pt"})
config = on_hub(model.config.to_diff_dict() | {"dtype": "bfloat16", "architectures": ["BitNetForCausalLM"]})
write_config(out / "hf/config.json", config)
write_config(out / "config_online.json", config | {"quantization_config": ONLINE})
tokenizer_of(byte_level, VOCAB).save_pretrained(out / "hf")
with tempfile.TemporaryDirectory() as files:
    shutil.copytree(out / "hf", files, dirs_exist_ok=True)
    shutil.copy(out / "config_online.json", Path(files) / "config.json")
    online = load(files)
gap = (logits(online, tokens) - answers).abs().max().item()
assert gap < 1e-6, f"the logits of the files differ from the saved model by {gap}"
unrounded(online)
moved = (logits(online, tokens) - answers).abs().max().item()
plain = (logits(load(out / "hf"), tokens) - answers).abs().max().item()
print(f"    with master weights: {moved:.3f}, also without rounding of activations: {plain:.3f}")
assert moved > 0.1 and plain > 0.1
ternary.record(out, model, tokens, answers, {"greedy": continuation, "lead": lead, "seed": seed, "edge": ternary.distances(model, [tokens]).min().item(), "weight_edge": edge})
