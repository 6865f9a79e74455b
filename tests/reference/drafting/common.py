"""Shared functions of the scripts in this folder: a tiny target model with its drafting head, and the draft tokens of the head.

Each script is one kind of head and writes `../../golden/drafting/NAME/`:

    hf/, model.gguf   the target model, as on the Hugging Face Hub and from llama.cpp's converter (matrices BF16, vectors F32)
    drafter/          the same of the drafter, if it is a model of its own
    logits.npy        float32 [3, draft vocabulary]: logits of the first draft token at the prefixes `logits_at`
    golden.json       tokens, drafts, seed, versions

`tokens` are a prompt of `prompt_len` tokens and the greedy continuation of the target. An item of `drafts` has
`len`, the number of tokens of a prefix, `tokens`, the greedy draft tokens that follow this prefix, and `lead`, the smallest margin of
one of them over the second best token. Prefixes with a small margin are left out.

A head has an entry for each position of a sequence, with a KV cache of its own. Entry p combines the embedding of token p + 1 with
a hidden state of the target at position p, and predicts token p + 2; its RoPE position is p. For a prefix of L tokens the
target has computed L - 1 positions, thus the entries 0 to L - 2 exist, and the last one predicts the first draft token.
Entry L - 1 + i combines the embedding of draft token i with the output of entry L - 2 + i, which takes the place of the hidden state.

This is the layout of vLLM (`prepare_inputs` of `vllm/v1/spec_decode/eagle.py` shifts the token ids by one, but not the positions) and of
EAGLE-3 in llama.cpp (`common/speculative.cpp`). The MTP drafter of llama.cpp stores entry p at position p + 1, which rotates queries
and keys by the same angle, and has an additional entry at position 0 that combines token 0 with zeros.

The heads are computed here in float64, each step from the whole sequence, on the BF16 weights; the hidden states of the target come from a
float64 copy of the model of `transformers`, whose norms and RoPE tables are in float32. Every script changes the features of its
head one by one, and fails if the logits of the first, or the tokens of the later draft tokens do not change.

    LLAMA_CPP=... python -m drafting.qwen3_5_mtp
"""
import json
import shutil
from copy import deepcopy
from importlib import import_module

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from arch.common import ROUNDING_MAX, logits, on_hub, rounded, rounding_error, tokenizer_of
from common import GOLDEN, MARGIN, greedy, random_tokens, randomise, versions

ROOT = GOLDEN / "drafting"
PROMPT, LENGTH, STEPS = 16, 80, 4
SHORTEST, LOGITS_AT = 3, 3
PREFIXES_MIN, DISTINCT_MIN = 24, 12


def rms(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def silu(x):
    return x * torch.sigmoid(x)


def rotate(x, positions, base, adjacent=False):
    """Applies RoPE to all of the last dimension of x [positions, heads, dim]: to pairs of its halves, or to adjacent elements."""
    half = x.shape[-1] // 2
    angles = positions.double()[:, None] * base ** (-torch.arange(half, dtype=torch.float64) / half)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    first, second = (x[..., 0::2], x[..., 1::2]) if adjacent else (x[..., :half], x[..., half:])
    pairs = first * cos - second * sin, first * sin + second * cos
    return torch.stack(pairs, -1).flatten(-2) if adjacent else torch.cat(pairs, -1)


def attend(q, k, v, scale):
    """Causal attention of q [positions, heads, dim] to k and v [positions, KV heads, dim]."""
    count = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(count, 1) for x in (k, v))
    future = torch.full((len(q), len(q)), -torch.inf, dtype=q.dtype).triu(1)
    return torch.einsum("hij,jhd->ihd", (torch.einsum("ihd,jhd->hij", q, k) * scale + future).softmax(-1), v)


def mlp(x, weights, path):
    gate, up, down = (weights[f"{path}.{part}_proj.weight"] for part in ("gate", "up", "down"))
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


def random_matrix(rng, *shape):
    return 1.5 * torch.randn(shape, generator=rng) / shape[-1] ** 0.5


def random_norm(rng, dim):
    return 1 + 0.2 * torch.randn(dim, generator=rng)


def target_states(model, ids):
    """Returns the input of each block, and the output of the last one and of the final norm, float64 [blocks + 2, positions, dim]."""
    core, kept = deepcopy(model).double().eval(), []
    core.set_experts_implementation("eager")
    for block in core.model.layers:
        block.register_forward_pre_hook(lambda module, args, kwargs: kept.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True)
    core.model.norm.register_forward_pre_hook(lambda module, args: kept.append(args[0]))
    core.model.norm.register_forward_hook(lambda module, args, out: kept.append(out))
    logits(core, ids)
    return torch.cat(kept).double()


def first_logits(head, tokens, states, length):
    """Returns the logits of the first draft token, and the outputs of all entries."""
    out, features = head(torch.tensor(tokens[1:length]), states[:length - 1])
    return out[-1], features


def draft(head, tokens, states, length, steps=STEPS):
    """Returns the greedy draft tokens that follow the first `length` tokens, and their smallest margin.

    `head(ids, states)` returns the logits of all entries and the outputs that take the place of hidden states."""
    ids, states, lead, out = list(tokens[1:length]), states[:length - 1], torch.inf, []
    for _ in range(steps):
        scores, features = head(torch.tensor(ids), states)
        best = scores[-1].topk(2)
        lead = min(lead, (best.values[0] - best.values[1]).item())
        token = head.token(best.indices[0].item())
        out.append(token)
        ids.append(token)
        states = torch.cat([states, features[-1:]])
    return out, lead


def drafts_of(head, tokens, states):
    found = []
    for length in range(SHORTEST, len(tokens) + 1):
        out, lead = draft(head, tokens, states, length)
        if lead > MARGIN:
            found.append({"len": length, "tokens": out, "lead": lead})
    return found


def varied(drafts):
    """Returns whether there are enough prefixes, and the tokens of every step are not repetitive."""
    return len(drafts) >= PREFIXES_MIN and all(len({item["tokens"][i] for item in drafts}) >= DISTINCT_MIN for i in range(STEPS))


def find_target(build, adjust=lambda model: None, fits=lambda model, tokens: True):
    """Yields seeds, models and tokens of targets with a sufficient greedy margin and a continuation that is not repetitive."""
    for seed in range(1000):
        model = randomise(build(), seed)
        adjust(model)
        rounded(model)
        prompt = random_tokens(model.config.vocab_size, seed, PROMPT)
        out, lead = greedy(model, prompt, LENGTH - PROMPT)
        tokens = prompt + out
        if lead > MARGIN and len(set(out)) >= 20 and len(set(out[-24:])) >= 8 and rounding_error(model, tokens) < ROUNDING_MAX and fits(model, tokens):
            yield seed, model, tokens, lead
    raise SystemExit("no suitable seed found")


def save_model(folder, model, vocabulary, more=None, layout=on_hub, hub=None, drop=(), weights=dict):
    """Writes a checkpoint of the model in BF16, with additional tensors, as on the Hugging Face Hub."""
    saved = AutoModelForCausalLM.from_config(model.config).to(torch.bfloat16)
    saved.load_state_dict(model.state_dict())
    saved.save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    config = layout(json.loads((folder / "config.json").read_text()))
    write_json(folder / "config.json", {key: value for key, value in config.items() if key not in drop} | (hub or {}))
    tensors = weights(load_file(folder / "model.safetensors") | (more or {}))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer_of(vocabulary, model.config.vocab_size).save_pretrained(folder)


def write_json(file, value):
    file.write_text(json.dumps(value, indent=1) + "\n")


def converted(folder, file, vocabulary, vocab, target=None):
    """Runs llama.cpp's converter, with the blocks that predict further tokens; `target` is the folder of the target of a drafter."""
    gguf = import_module("gguf")
    conversion = import_module("conversion")
    architecture = conversion.get_model_architecture(conversion.ModelBase.load_hparams(folder, False), conversion.ModelType.TEXT)
    cls = conversion.get_model_class(architecture)
    cls.no_mtp = False
    cls.set_vocab = lambda self: vocabulary(self.gguf_writer, vocab)
    with torch.inference_mode():
        cls(folder, gguf.LlamaFileType.MOSTLY_BF16, file, model_name=f"tabla-test-{folder.parent.name}", target_model_dir=target).write()


def changes_logits(head, changed, tokens, states, name, at=24):
    """Checks that the logits of the first draft token differ between two heads."""
    moved = (first_logits(head, tokens, states[0], at)[0] - first_logits(changed, tokens, states[1], at)[0]).abs().max().item()
    print(f"    {name}: {moved:.3f}")
    assert moved > 1e-2, f"the logits do not change with {name}"


def changes_drafts(drafts, changed, tokens, states, name):
    """Checks that later draft tokens differ with another head, although the first ones are the same."""
    others = [(item["tokens"], draft(changed, tokens, states, item["len"])[0]) for item in drafts]
    differ = sum(a != b for a, b in others)
    print(f"    {name}: {differ} of {len(others)} drafts differ")
    assert differ > 0 and all(a[0] == b[0] for a, b in others), f"the drafts do not change with {name}"


def save(name, head, tokens, states, drafts, **facts):
    """Writes logits.npy and golden.json, and reports the sizes of all files."""
    out = ROOT / name
    at = [drafts[i]["len"] for i in np.linspace(0, len(drafts) - 1, LOGITS_AT).round().astype(int)]
    np.save(out / "logits.npy", torch.stack([first_logits(head, tokens, states, length)[0] for length in at]).float().numpy())
    record = {"name": name, "tokens": tokens, "prompt_len": PROMPT, **facts, "logits_at": at, "drafts": drafts, "versions": versions()}
    (out / "golden.json").write_text(json.dumps(record) + "\n")
    sizes = {f.relative_to(out).as_posix(): f.stat().st_size for f in sorted(out.rglob("*")) if f.is_file()}
    accepted = sum(item["len"] < len(tokens) and item["tokens"][0] == tokens[item["len"]] for item in drafts)
    print(f"{name}: {len(drafts)} prefixes, smallest lead {min(item['lead'] for item in drafts):.4f}, {accepted} first draft tokens correct, "
          f"{sum(sizes.values())} bytes {sizes}")


def cleared(name):
    torch.set_num_threads(1)
    shutil.rmtree(ROOT / name, ignore_errors=True)
    (ROOT / name).mkdir(parents=True)
    return ROOT / name
