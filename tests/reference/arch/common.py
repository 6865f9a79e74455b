"""What the scripts of this folder share: a tiny checkpoint of one architecture, and what the reference says of it.

Each script is one architecture and writes `../../golden/arch/NAME/`:

    hf/            config.json, model.safetensors (BF16), tokenizer.json, tokenizer_config.json, as a model hub holds them
    mlx/           the same as `mlx-lm` saves it, only where its layout is another one
    model.gguf     by llama.cpp's converter: matrices BF16, vectors F32
    logits.npy     float32 [96, vocab]: one forward pass of `transformers` over `tokens`, in float32 on the BF16 weights
    hidden.npy     float32 [layers, 96, dim]: the residual stream behind every block, before the final norm
    golden.json    tokens, greedy continuation of the first 8 of them, its smallest lead, seed, versions

Every script takes what its architecture does beside plain attention away, piece by piece, and fails
where the logits do not notice. Run from `tests/reference`, with LLAMA_CPP naming a source tree of
llama.cpp (its converter is not on PyPI):

    LLAMA_CPP=... python -m arch.llama
"""
import json
import os
import shutil
import sys
from copy import deepcopy
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.utils.logging import disable_progress_bar

if "LLAMA_CPP" not in os.environ:
    sys.exit("LLAMA_CPP must name a source tree of llama.cpp, for its converter")
LLAMA_CPP = Path(os.environ["LLAMA_CPP"])
# The converter's own gguf package is the one that it needs, for ours too.
sys.path[:0] = [str(LLAMA_CPP), str(LLAMA_CPP / "gguf-py")]

import common
import gguf
from common import GREEDY, MARGIN, PROMPT, byte_level, logits, random_tokens, randomise, sentencepiece, versions

disable_progress_bar()
ROOT = common.GOLDEN / "arch"
POSITIONS = 96
UNREST = 1e-5  # of the 1e-4 that a runtime may be off
VOCAB = 288
# How the causal masks in GPT-2's file are called.
MASK = ".attn.bias"


def tokenizer_of(vocabulary, vocab):
    """The same tokens as a vocabulary of `common` writes into a GGUF."""
    if vocabulary is sentencepiece:
        return common.sentencepiece_tokenizer()
    return (common.byte_level_tokenizer if vocabulary is byte_level else common.gemma_tokenizer)(vocab)


def as_saved(config):
    """config.json as transformers 5 writes it."""
    return config


def on_hub(config):
    """config.json with the rope keys of transformers 4, which nearly all published files have."""
    rope = config.pop("rope_parameters", None) or {}
    for key in ("rope_theta", "partial_rotary_factor"):
        if key in rope:
            config[key] = rope.pop(key)
    if rope:
        config["rope_scaling"] = None if rope == {"rope_type": "default"} else rope
    config["torch_dtype"] = config.pop("dtype")
    config.pop("transformers_version")
    return config


def blocks(model):
    """The decoder layers, whatever the architecture calls them."""
    return next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == model.config.get_text_config().num_hidden_layers)


def hidden(model, ids):
    """Float32 [layers, positions, dim]: the residual stream behind every block."""
    rows = []
    keep = lambda module, args, out: rows.append((out if torch.is_tensor(out) else out[0])[0])
    hooks = [block.register_forward_hook(keep) for block in blocks(model)]
    logits(model, ids)
    for hook in hooks:
        hook.remove()
    return torch.stack(rows)


def pin_rope(model, ids):
    """Keeps the rope frequencies of a pass over `ids`, which some kinds of scaling choose by its length."""
    logits(model, ids)
    for module in model.modules():
        if "dynamic" in getattr(module, "rope_type", "") or getattr(module, "rope_type", "") == "longrope":
            module.rope_type = "default"
    return model


def rounded(model):
    """The model on weights that BF16 can hold."""
    with torch.no_grad():
        for p in [*model.parameters(), *(b for name, b in model.named_buffers() if name.endswith("layer_scalar"))]:
            p.copy_(p.bfloat16().float())
    return model


def unrest(model, ids):
    """How far float32 arithmetic moves the logits: a runtime may be as far from them again."""
    exact = deepcopy(model).double()
    exact.set_experts_implementation("eager")  # the other ones have no float64
    return (logits(exact, ids) - logits(model, ids)).abs().max().item()


def find_seed(build, vocab, temper=lambda model: None):
    """The first seed whose logits are steady, and whose greedy continuation is clear and does not end in one token over and over."""
    for seed in range(1000):
        model, tokens = randomise(build(), seed), random_tokens(vocab, seed, POSITIONS)
        temper(model)
        rounded(model)
        pin_rope(model, tokens)
        out, lead = common.greedy(model, tokens[:PROMPT], GREEDY)
        if lead > MARGIN and len(set(out)) >= 12 and len(set(out[-12:])) >= 3 and unrest(model, tokens) < UNREST:
            return seed, model, tokens, out, lead
    raise SystemExit("no seed will do")


def load(folder, **changes):
    """The checkpoint in float32 as `transformers` reads it from its files; `changes` go into the configuration."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager", **changes)
    return model.eval()


def converted(folder, file, vocabulary, vocab, keys=lambda writer: None, kind=gguf.LlamaFileType.MOSTLY_BF16):
    """The checkpoint by llama.cpp's converter, which does not know the hash of a tiny vocabulary's pre-tokenizer."""
    conversion = import_module("conversion")
    architecture = conversion.get_model_architecture(conversion.ModelBase.load_hparams(folder, False), conversion.ModelType.TEXT)
    cls = conversion.get_model_class(architecture)
    cls.set_vocab = lambda self: (vocabulary(self.gguf_writer, vocab), keys(self.gguf_writer))
    with torch.inference_mode():
        writer = cls(folder, kind, file, model_name=f"tabla-test-{folder.parent.name}")
        for mask in [name for name in writer.model_tensors if name.endswith(MASK)]:
            # The converter means to leave these out, and fails on their names.
            del writer.model_tensors[mask]
        writer.write()


def check_values(folder, file, made=(), aside=(), before=lambda name, array: array):
    """Fails unless every tensor of the GGUF has the values of one of the checkpoint, or a part or a stack of some.

    `made` are the names that the converter makes from the configuration, `aside` parts of the names that
    it leaves out, `before` gives from a name and its values in the GGUF those that the checkpoint has."""
    pile = lambda arrays: np.sort(np.concatenate([np.asarray(a, np.float32).ravel() for a in arrays]))
    stored = [t.float().numpy() for key, t in load_file(folder / "model.safetensors").items() if not any(part in key for part in (MASK, *aside))]
    found = [before(t.name, gguf.quants.dequantize(t.data, t.tensor_type)) for t in gguf.GGUFReader(file).tensors if t.name not in made]
    if not np.array_equal(pile(stored), pile(found)):
        raise SystemExit(f"{file} does not hold the values of the checkpoint")


def mlx_layout(folder, out, tokens, answers):
    """The checkpoint as `mlx-lm` saves it, which has to answer the same."""
    import mlx.core as mx
    from mlx_lm.utils import load_model, save_config, save_model
    out.mkdir()
    model, config = load_model(folder)
    save_model(out, model)
    save_config(config, out / "config.json")
    (out / "model.safetensors.index.json").unlink()
    model, _ = load_model(out)
    model.set_dtype(mx.float32)
    gap = np.abs(np.array(model(mx.array([tokens]))[0]) - answers).max()
    print(f"    mlx-lm: {gap:.2e}")
    assert gap < 1e-4


def golden(name, config, vocabulary=byte_level, *, layout=on_hub, hub=None, drop=(), weights=dict, temper=lambda model: None, matters=(), made=(),
           aside=(), before=lambda name, array: array, keys=lambda writer: None, to_gguf=True, mlx=False, notes=None):
    """Writes the folder of one architecture.

    config      configuration of `transformers`, whose class names the model
    layout      from the configuration as `transformers` 5 writes it to that of published files
    hub, drop   keys of config.json as published files have them, over those of `layout`, and keys that these lack
    weights     from the tensors as `transformers` saves them to those of published files
    temper      changes random weights to such as the architecture has
    matters     changes of the configuration, or functions of the model, that must each move the logits
    made        tensors of the GGUF that are not in the checkpoint
    aside       parts of the names of tensors of the checkpoint that are not in the GGUF
    before      from a name and its values in the GGUF to those in the checkpoint
    keys        writes further keys of the GGUF
    to_gguf     False where a GGUF cannot say what the configuration says
    """
    torch.set_num_threads(1)
    out, vocab = ROOT / name, config.vocab_size
    shutil.rmtree(out, ignore_errors=True)
    folder = out / "hf"
    build = lambda: AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    seed, model, tokens, continuation, lead = find_seed(build, vocab, temper=temper)
    answers = logits(model, tokens)

    saved = build().to(torch.bfloat16)
    saved.load_state_dict(model.state_dict())
    saved.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    written = json.loads((folder / "config.json").read_text())
    written = {key: value for key, value in layout(written).items() if key not in drop} | (hub or {})
    (folder / "config.json").write_text(json.dumps(written, indent=1) + "\n")
    save_file(weights(load_file(folder / "model.safetensors")), folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer_of(vocabulary, vocab).save_pretrained(folder)

    gap = (logits(load(folder), tokens) - answers).abs().max().item()
    assert gap < 1e-6, f"{name}: the files answer otherwise than the model that was saved, by {gap}"
    for change in matters:
        changed = load(folder, **change) if isinstance(change, dict) else load(folder)
        if callable(change):
            change(changed)
        moved = (logits(changed, tokens) - answers).abs().max().item()
        print(f"    without {getattr(change, '__name__', change)}: {moved:.3f}")
        assert moved > 1e-4, f"{name}: the logits do not notice {change}"

    np.save(out / "logits.npy", answers.numpy())
    np.save(out / "hidden.npy", hidden(model, tokens).numpy())
    record = {"name": name, "tokens": tokens, "prompt_len": PROMPT, "greedy": continuation, "lead": lead, "seed": seed,
              "reference": f"transformers {type(model).__name__}, float32, eager attention", "versions": versions()}
    (out / "golden.json").write_text(json.dumps(record | ({"notes": notes} if notes else {})) + "\n")
    if to_gguf:
        converted(folder, out / "model.gguf", vocabulary, vocab, keys)
        check_values(folder, out / "model.gguf", made, aside, before)
    if mlx:
        mlx_layout(folder, out / "mlx", tokens, answers.numpy())
    sizes = {f.relative_to(out).as_posix(): f.stat().st_size for f in sorted(out.rglob("*")) if f.is_file()}
    print(f"{name}: seed {seed}, lead {lead:.4f}, max |logit| {answers.abs().max():.2f}, {sum(sizes.values())} bytes {sizes}")
