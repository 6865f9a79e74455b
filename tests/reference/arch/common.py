"""Shared functions of the scripts in this folder: a tiny checkpoint of one architecture, with reference outputs.

Each script is one architecture and writes `../../golden/arch/NAME/`:

    hf/            config.json, model.safetensors (BF16), tokenizer.json, tokenizer_config.json, as on the Hugging Face Hub
    mlx/           the same as saved by `mlx-lm`, only if its layout differs
    model.gguf     from llama.cpp's converter: matrices BF16, vectors F32
    logits.npy     float32 [96, vocab]: one forward pass of `transformers` over `tokens`, in float32 on the BF16 weights
    hidden.npy     float32 [layers, 96, dim]: the residual stream after every block, before the final norm
    golden.json    tokens, greedy continuation of the first 8 of them, its smallest margin, seed, versions

Every script disables the special features of its architecture one by one, and fails if the logits do
not change. Run from `tests/reference`, with torch, transformers 5, safetensors, tokenizers and numpy; LLAMA_CPP is a
source tree of llama.cpp (its converter is not on PyPI), which a checkpoint with `to_gguf=False` does not need if the
package gguf is installed:

    LLAMA_CPP=... python -m arch.llama
"""
import json
import math
import os
import shutil
import sys
from copy import deepcopy
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.utils.logging import disable_progress_bar

if "LLAMA_CPP" in os.environ:
    # The converter requires its own gguf package.
    sys.path[:0] = [os.environ["LLAMA_CPP"], str(Path(os.environ["LLAMA_CPP"]) / "gguf-py")]

import common
import gguf
from common import GREEDY, MARGIN, PROMPT, byte_level, logits, random_tokens, randomise, sentencepiece, versions

disable_progress_bar()
ROOT = common.GOLDEN / "arch"
POSITIONS = 96
ROUNDING_MAX = 1e-5  # the tolerance of the tests is 1e-4
ROUTER_MARGIN = 3e-5
VOCAB = 288
# Name of the causal masks in GPT-2's file.
MASK = ".attn.bias"


def tokenizer_of(vocabulary, vocab):
    """Returns a tokenizer with the tokens of a GGUF vocabulary of `common`."""
    if vocabulary is sentencepiece:
        return common.sentencepiece_tokenizer()
    return (common.byte_level_tokenizer if vocabulary is byte_level else common.gemma_tokenizer)(vocab)


def as_saved(config):
    """Returns config.json as written by transformers 5."""
    return config


def on_hub(config):
    """Returns config.json with the RoPE keys of transformers 4, as in most published files."""
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
    """Returns the decoder layers of any architecture."""
    return next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == model.config.get_text_config().num_hidden_layers)


def hidden(model, ids):
    """Returns the residual stream after every block, float32 [layers, positions, dim]."""
    rows = []

    def keep(module, args, out):
        out = out if torch.is_tensor(out) else out[0]
        rows.append(out.reshape(-1, *out.shape[-2:])[0])  # the first of several streams
    hooks = [block.register_forward_hook(keep) for block in blocks(model)]
    logits(model, ids)
    for hook in hooks:
        hook.remove()
    return torch.stack(rows)


def pin_rope(model, ids):
    """Fixes the RoPE frequencies to those of a pass over `ids`; some scaling types depend on its length."""
    logits(model, ids)
    for module in model.modules():
        if "dynamic" in getattr(module, "rope_type", "") or getattr(module, "rope_type", "") == "longrope":
            module.rope_type = "default"
    return model


def rounded(model):
    """Rounds the weights to BF16."""
    with torch.no_grad():
        for p in [*model.parameters(), *(b for name, b in model.named_buffers() if name.endswith("layer_scalar"))]:
            p.copy_(p.bfloat16().float())
    return model


def rounding_error(model, ids):
    """Returns the error of the logits due to float32 arithmetic; a runtime may have a similar error."""
    exact = deepcopy(model).double()
    exact.set_experts_implementation("eager")  # the others do not support float64
    return (logits(exact, ids) - logits(model, ids)).abs().max().item()


def routers(model):
    return [m for m in model.modules() if type(m).__name__.endswith("Router")]


def smallest_lead(values, count):
    """Returns the smallest lead of the last of the `count` largest values over the next one; infinite if there is none."""
    best = values.sort(-1, descending=True).values
    return (best[..., count - 1] - best[..., count]).min().item() if count < best.shape[-1] else math.inf


def router_lead(model, ids):
    """Returns the smallest lead of the last chosen expert, or group of experts, over the next one, in the values that
    choose them; infinite without experts."""
    leads = []

    def look(router, args, out):
        values, biased = out[0], getattr(router, "e_score_correction_bias", args[1] if len(args) > 1 else None)
        if biased is not None:
            values = values.sigmoid() + biased
        groups = getattr(router, "num_group", None) or 1
        if groups > 1:
            parts = values.unflatten(-1, (groups, -1))
            sums = parts.topk(1 if biased is None else 2, -1).values.sum(-1)
            leads.append(smallest_lead(sums, router.topk_group))
            others = torch.ones_like(sums).scatter(-1, sums.topk(router.topk_group, -1).indices, 0).bool()
            values = parts.masked_fill(others[..., None], -1e9).flatten(-2)
        leads.append(smallest_lead(values, out[2].shape[-1]))
    hooks = [router.register_forward_hook(look) for router in routers(model)]
    logits(model, ids)
    for hook in hooks:
        hook.remove()
    return min(leads, default=math.inf)


def find_seed(build, vocab, adjust=lambda model: None, fits=lambda model, ids: True):
    """Finds the first seed with a small rounding error, no near ties of experts, and a greedy continuation with a sufficient margin
    that is not repetitive; `fits` is an additional condition on the model and all tokens."""
    for seed in range(1000):
        model, tokens = randomise(build(), seed), random_tokens(vocab, seed, POSITIONS)
        adjust(model)
        rounded(model)
        pin_rope(model, tokens)
        out, lead = common.greedy(model, tokens[:PROMPT], GREEDY)
        if lead > MARGIN and len(set(out)) >= 12 and len(set(out[-12:])) >= 3 and rounding_error(model, tokens) < ROUNDING_MAX and all(
                router_lead(model, ids) > ROUTER_MARGIN and fits(model, ids) for ids in (tokens, tokens[:PROMPT] + out)):
            return seed, model, tokens, out, lead
    raise SystemExit("no suitable seed found")


def load(folder, **changes):
    """Loads the checkpoint in float32 with `transformers`; `changes` override the configuration."""
    text_only = type(AutoConfig.from_pretrained(folder)) in AutoModelForCausalLM._model_mapping
    source = AutoModelForCausalLM if text_only else AutoModelForImageTextToText
    model = source.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager", **changes)
    return model.eval()


def converted(folder, file, vocabulary, vocab, keys=lambda writer: None, kind=gguf.LlamaFileType.MOSTLY_BF16, mtp=False):
    """Runs llama.cpp's converter; the vocabulary is set here, because its pre-tokenizer hash is unknown to the converter.

    `mtp` includes the blocks that predict further tokens."""
    if "LLAMA_CPP" not in os.environ:
        sys.exit("LLAMA_CPP is not set: expected a source tree of llama.cpp")
    conversion = import_module("conversion")
    architecture = conversion.get_model_architecture(conversion.ModelBase.load_hparams(folder, False), conversion.ModelType.TEXT)
    cls = conversion.get_model_class(architecture)
    cls.no_mtp = not mtp
    # A wrapper that delegates to this class has its vocabulary.
    getattr(cls, "Ministral3Model", cls).set_vocab = lambda self: (vocabulary(self.gguf_writer, vocab), keys(self.gguf_writer))
    with torch.inference_mode():
        writer = cls(folder, kind, file, model_name=f"tabla-test-{folder.parent.name}")
        for mask in [name for name in writer.model_tensors if name.endswith(MASK)]:
            # The converter is meant to skip these, but fails on their names.
            del writer.model_tensors[mask]
        writer.write()


def check_values(folder, file, generated=(), excluded=(), to_checkpoint=lambda name, array: array, decode=lambda tensors: tensors):
    """Checks that the GGUF has exactly the values of the checkpoint, in any split or stacking of tensors.

    `generated` are tensors that the converter computes from the configuration, `excluded` substrings of the names of
    tensors that it skips; `to_checkpoint` maps a name and its GGUF values to the checkpoint values; `decode` decodes quantized tensors of
    the checkpoint."""
    all_values = lambda arrays: np.sort(np.concatenate([np.asarray(a, np.float32).ravel() for a in arrays]))
    stored = [t.float().numpy() for key, t in decode(load_file(folder / "model.safetensors")).items() if not any(part in key for part in (MASK, *excluded))]
    actual = [to_checkpoint(t.name, gguf.quants.dequantize(t.data, t.tensor_type)) for t in gguf.GGUFReader(file).tensors if t.name not in generated]
    if not np.array_equal(all_values(stored), all_values(actual)):
        raise SystemExit(f"{file}: the values differ from the checkpoint")


def mlx_layout(folder, out, tokens, answers, agrees):
    """Saves the checkpoint with `mlx-lm` and checks its logits, unless its code is known to differ from the model."""
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
    assert gap < 1e-4 or not agrees


def golden(name, config, vocabulary=byte_level, *, layout=on_hub, hub=None, drop=(), weights=dict, adjust=lambda model: None, fits=lambda model, ids: True, ablations=(), generated=(),
           excluded=(), to_checkpoint=lambda name, array: array, decode=lambda tensors: tensors, keys=lambda writer: None, load=load, to_gguf=True,
           kind=gguf.LlamaFileType.MOSTLY_BF16, mtp=False, mlx=False, mlx_agrees=True, notes=None):
    """Writes the folder of one architecture.

    config         configuration of `transformers`, whose class defines the model
    layout         converts the configuration of `transformers` 5 to that of published files
    hub, drop      keys of config.json of published files that override those of `layout`, and keys to remove
    weights        converts the tensors saved by `transformers` to those of published files
    adjust         changes random weights to the value range of the architecture
    fits           additional condition of the search for a seed
    ablations      changes of the configuration, or functions of the model, that must each change the logits
    generated      tensors of the GGUF that are not in the checkpoint
    excluded       substrings of the names of checkpoint tensors that are not in the GGUF
    to_checkpoint  maps a name and its GGUF values to the checkpoint values
    decode         decodes quantized tensors of the checkpoint
    keys           writes additional GGUF keys
    load           loads a folder with changes of the configuration
    to_gguf        False if GGUF cannot represent the configuration
    kind           type of the matrices of the GGUF
    mlx, mlx_agrees  True if there is an MLX folder; False if the code of `mlx-lm` differs from the model
    mtp            True if the GGUF has the blocks that predict further tokens
    """
    torch.set_num_threads(1)
    out, vocab = ROOT / name, config.vocab_size
    shutil.rmtree(out, ignore_errors=True)
    folder = out / "hf"

    def build():
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        model.set_experts_implementation("eager")
        return model
    seed, model, tokens, continuation, lead = find_seed(build, vocab, adjust, fits)
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
    assert gap < 1e-6, f"{name}: the logits of the files differ from the saved model by {gap}"
    for change in ablations:
        changed = load(folder, **change) if isinstance(change, dict) else load(folder)
        if callable(change):
            change(changed)
        moved = (logits(changed, tokens) - answers).abs().max().item()
        print(f"    without {getattr(change, '__name__', change)}: {moved:.3f}")
        assert moved > 1e-4, f"{name}: the logits do not change with {change}"

    np.save(out / "logits.npy", answers.numpy())
    np.save(out / "hidden.npy", hidden(model, tokens).numpy())
    record = {"name": name, "tokens": tokens, "prompt_len": PROMPT, "greedy": continuation, "lead": lead, "seed": seed,
              "reference": f"transformers {type(model).__name__}, float32, eager attention", "versions": versions()}
    (out / "golden.json").write_text(json.dumps(record | ({"notes": notes} if notes else {})) + "\n")
    if to_gguf:
        converted(folder, out / "model.gguf", vocabulary, vocab, keys, kind, mtp)
        check_values(folder, out / "model.gguf", generated, excluded, to_checkpoint, decode)
    if mlx:
        mlx_layout(folder, out / "mlx", tokens, answers.numpy(), mlx_agrees)
    sizes = {f.relative_to(out).as_posix(): f.stat().st_size for f in sorted(out.rglob("*")) if f.is_file()}
    print(f"{name}: seed {seed}, lead {lead:.4f}, max |logit| {answers.abs().max():.2f}, {sum(sizes.values())} bytes {sizes}")
