"""Values inside the forward pass of `transformers`, and logits with the same interventions by PyTorch hooks, for
checkpoints of `../golden/arch`. Writes to each folder:

    points.json        what follows, and versions
    attn_weights.npy   float32 [layers, tokens, heads, tokens]: attention after softmax
    attn_output.npy    float32 [layers, tokens, dim]: output projection of attention, with its bias
    ffn_down.npy       float32 [layers, tokens, dim]: output of the feed-forward layer
    edited.npy         float32 [3, tokens, vocab]: logits; for encoders [3, tokens, dim], the last layer

The rows of `edited.npy`: sin(i) added to number i of the residual stream after the first layer; the output of attention of the
last layer multiplied by 0; the residual stream after the first layer of the tokens 2 to 4 replaced by cos(i).

    python points.py [NAME ...]

Without names it writes the folders that have points.json.
"""
import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import AutoModel, AutoModelForCausalLM

ROOT = Path(__file__).parent.parent / "golden/arch"
TOKENS = 12
# Ends of the names of the modules of a layer: attention, its output projection, feed-forward layer.
ATTENTION = ("self_attn", "attn", "attention.self")
OUTPUT = ("self_attn.o_proj", "attn.c_proj", "attn.Wo", "attention.output.dense", "self_attn.dense", "attn.out_proj")
FEED_FORWARD = ("mlp", "output.dense")


def find(block, ends):
    """Returns the module of a layer with one of these names."""
    modules = dict(block.named_modules())
    return next((modules[name] for name in ends if name in modules), None)


def blocks(model):
    count = model.config.get_text_config().num_hidden_layers
    return next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == count)


def tensor(out):
    return out if torch.is_tensor(out) else out[0]


def run(model, ids, hooks=()):
    """Returns the output rows of one pass with forward hooks: pairs of a module and a function of its output."""
    def hook_of(change):
        def hook(module, args, out):
            new = change(tensor(out), out)
            if new is None:
                return None
            return new if torch.is_tensor(out) else (new, *out[1:])
        return hook
    handles = [module.register_forward_hook(hook_of(change)) for module, change in hooks]
    with torch.no_grad():
        out = model(torch.tensor([ids]), use_cache=False, output_attentions=True)
    for handle in handles:
        handle.remove()
    rows = out.logits if hasattr(out, "logits") else out.last_hidden_state
    return rows[0].float().numpy(), out.attentions


def pin_rope(model, ids):
    """Fixes the RoPE frequencies to those of a pass over `ids`; some scaling types depend on its length."""
    run(model, ids)
    for module in model.modules():
        rope = getattr(module, "rope_type", "")
        if isinstance(rope, str) and ("dynamic" in rope or rope == "longrope"):
            module.rope_type = "default"


def points(folder):
    golden = json.loads((folder / "golden.json").read_text())
    encoder = "batch" in golden
    ids = golden["batch"][2] if encoder else golden["tokens"][:TOKENS]
    source = AutoModel if encoder else AutoModelForCausalLM
    with tempfile.TemporaryDirectory() as files:
        shutil.copytree(folder / "hf", files, dirs_exist_ok=True)
        if (folder / "config_transformers5.json").exists():
            shutil.copy(folder / "config_transformers5.json", Path(files) / "config.json")
        model = source.from_pretrained(files, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager").eval()
    if not encoder:
        pin_rope(model, golden["tokens"])
    layers = blocks(model)
    parts = [[find(block, ends) for ends in (OUTPUT, FEED_FORWARD)] for block in layers]
    if any(part is None for row in parts for part in row):
        raise ValueError(f"unknown modules: {[name for name, _ in layers[0].named_modules()]}")
    kept = [[[], []] for _ in layers]
    keep = lambda to: lambda value, out: to.append(value[0].float().numpy().copy())
    hooks = [(module, keep(to)) for row, lists in zip(parts, kept) for module, to in zip(row, lists)]
    rows, attentions = run(model, ids, hooks)
    number = torch.arange(model.config.get_text_config().hidden_size, dtype=torch.float32)

    def patch(value, out):
        value = value.clone()
        value[0, 2:5] = torch.cos(number)
        return value

    edits = [
        (layers[0], lambda value, out: value + torch.sin(number)),
        (parts[-1][0], lambda value, out: value * 0),
        (layers[0], patch),
    ]
    edited = [run(model, ids, [edit])[0] for edit in edits]
    assert all(np.abs(edit - rows).max() > 1e-2 for edit in edited), "an intervention has no effect"
    save = lambda name, arrays: np.save(folder / f"{name}.npy", np.stack(arrays).astype(np.float32))
    save("attn_weights", [layer[0].transpose(0, 1).float().numpy() for layer in attentions])
    save("attn_output", [lists[0][0] for lists in kept])
    save("ffn_down", [lists[1][0].reshape(len(ids), -1) for lists in kept])
    save("edited", edited)
    facts = {"tokens": ids, "heads": attentions[0].shape[1], "layers": len(layers), "transformers": transformers.__version__, "torch": torch.__version__}
    (folder / "points.json").write_text(json.dumps(facts) + "\n")


for folder in sorted(ROOT.iterdir()):
    if not (folder.name in sys.argv[1:] if sys.argv[1:] else (folder / "points.json").exists()):
        continue
    try:
        points(folder)
        print(folder.name)
    except Exception as error:
        print(f"{folder.name}: {type(error).__name__}: {str(error)[:300]}")
