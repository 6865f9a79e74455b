"""EAGLE-3: a Llama target, and a drafter of one layer with its own small vocabulary.

- Features of position p: `fc [low | middle | high]`, the residual stream of the target at the inputs of blocks 2, n / 2 and n - 3, that is after so
  many blocks, without any norm, unless `eagle_aux_hidden_state_layer_ids` has other numbers (vLLM `models/llama.py`, which keeps
  `hidden_states + residual` before the block; EAGLE `modeling_llama_kv.py`; llama.cpp `llama_set_embeddings_layer_inp`). SGLang and SpecForge
  name the block whose output is kept, that is these numbers minus 1.
- Input of attention: `[rms(embedding; input_layernorm) | rms(features; hidden_norm)]`, the embedding first, thus 2 x hidden_size columns. The
  residual is the features before `hidden_norm`, unless `norm_before_residual` is set (vLLM `models/llama_eagle3.py`, llama.cpp
  `src/models/eagle3.cpp`). Embeddings are those of the target, unless the drafter has `embed_tokens`; they have no other norm.
- The residual stream after the MLP, before `norm`, takes the place of the features in the next step; `fc` is for the target only (both).
- `d2t` has offsets: draft token i is token i + d2t[i] of the target; `t2d` tells which tokens of the target have a draft token. The GGUF has
  the sums as I64, and no `t2d`.
- RoPE is that of the drafter's config, which lacks `rope_theta` here as in the first published drafters: 10000. The rows of Q and K in the GGUF
  are permuted as in any Llama.

`logits.npy` is over the draft vocabulary, and the draft tokens in golden.json are those of the target."""
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig

from arch.common import check_values
from common import sentencepiece
from drafting.common import (
    attend, changes_drafts, changes_logits, cleared, converted, drafts_of, find_target, mlp, random_matrix, random_norm, rms, rotate, save,
    save_model, target_states, varied, write_json)

NAME = "eagle3"
VOCAB, DRAFT_VOCAB, DIM, LAYERS = 288, 160, 32, 8
TAPS = (2, LAYERS // 2, LAYERS - 3)
BASE = 10000.0
TARGET = dict(
    vocab_size=VOCAB, hidden_size=DIM, intermediate_size=48, num_hidden_layers=LAYERS, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 500.0})
DRAFTER = {
    "architectures": ["LlamaForCausalLMEagle3"], "bos_token_id": 1, "draft_vocab_size": DRAFT_VOCAB, "eos_token_id": 2, "hidden_act": "silu",
    "hidden_size": DIM, "initializer_range": 0.02, "intermediate_size": 40, "max_position_embeddings": 256, "model_type": "llama",
    "num_attention_heads": 4, "num_hidden_layers": 1, "num_key_value_heads": 4, "pad_token_id": 0, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.51.0", "use_cache": True, "vocab_size": VOCAB}
HEADS, KV_HEADS = DRAFTER["num_attention_heads"], DRAFTER["num_key_value_heads"]


def random_tensors(seed):
    rng, width = torch.Generator().manual_seed(seed), DRAFTER["intermediate_size"]
    keys = DIM // HEADS * KV_HEADS
    matrices = {"fc": (DIM, 3 * DIM), "lm_head": (DRAFT_VOCAB, DIM), "midlayer.self_attn.q_proj": (DIM, 2 * DIM), "midlayer.self_attn.k_proj": (keys, 2 * DIM),
                "midlayer.self_attn.v_proj": (keys, 2 * DIM), "midlayer.self_attn.o_proj": (DIM, DIM), "midlayer.mlp.gate_proj": (width, DIM),
                "midlayer.mlp.up_proj": (width, DIM), "midlayer.mlp.down_proj": (DIM, width)}
    norms = ("midlayer.hidden_norm", "midlayer.input_layernorm", "midlayer.post_attention_layernorm", "norm")
    tensors = {name: random_matrix(rng, *shape) for name, shape in matrices.items()} | {name: random_norm(rng, DIM) for name in norms}
    tokens = torch.randperm(VOCAB, generator=rng)[:DRAFT_VOCAB].sort().values
    known = torch.zeros(VOCAB, dtype=torch.bool)
    known[tokens] = True
    return {f"{name}.weight": t.bfloat16() for name, t in tensors.items()} | {"d2t": tokens - torch.arange(DRAFT_VOCAB), "t2d": known}


class Head:
    """The drafter in float64. `changes` are names of features to change."""

    def __init__(self, tensors, embeddings, *changes):
        self.weights = {name: t.double() for name, t in tensors.items() if name not in ("d2t", "t2d")}
        self.embeddings, self.offsets, self.changes = embeddings.double(), tensors["d2t"], changes

    def token(self, index):
        return index + self.offsets[index].item()

    def features(self, states, taps=TAPS):
        return torch.cat([states[tap] for tap in taps], -1) @ self.weights["fc.weight"].T

    def norm(self, x, name):
        return x if name in self.changes else rms(x, self.weights[f"{name}.weight"], DRAFTER["rms_norm_eps"])

    def __call__(self, ids, features):
        parts = self.norm(self.embeddings[ids], "midlayer.input_layernorm"), self.norm(features, "midlayer.hidden_norm")
        x = torch.cat(parts[::-1] if "order" in self.changes else parts, -1)
        project = lambda part: (x @ self.weights[f"midlayer.self_attn.{part}_proj.weight"].T).unflatten(-1, (-1, DIM // HEADS))
        q, k, v = map(project, "qkv")
        base = TARGET["rope_parameters"]["rope_theta"] if "RoPE of the target" in self.changes else BASE
        q, k = (rotate(y, torch.arange(len(ids)), base) for y in (q, k))
        y = attend(q, k, v, (DIM // HEADS) ** -0.5).flatten(-2) @ self.weights["midlayer.self_attn.o_proj.weight"].T
        x = (parts[1] if "norm before the residual" in self.changes else features) + y
        x = x + mlp(self.norm(x, "midlayer.post_attention_layernorm"), self.weights, "midlayer.mlp")
        out = self.norm(x, "norm")
        return out @ self.weights["lm_head.weight"].T, out if "output after the norm" in self.changes else x


def check_ids(file, offsets):
    """Checks that `d2t` of the GGUF has tokens of the target."""
    from gguf import GGUFReader
    stored = next(t for t in GGUFReader(file).tensors if t.name == "d2t")
    assert stored.tensor_type.name == "I64" and np.array_equal(stored.data, offsets.numpy() + np.arange(len(offsets))), f"{file}: unexpected d2t"


def save_drafter(out, tensors):
    (out / "hf").mkdir(parents=True)
    write_json(out / "hf" / "config.json", DRAFTER)
    save_file(tensors, out / "hf" / "model.safetensors", metadata={"format": "pt"})
    converted(out / "hf", out / "drafter.gguf", sentencepiece, VOCAB, target=out.parent / "hf")
    check_values(out / "hf", out / "drafter.gguf", generated=("d2t",), excluded=("d2t", "t2d"))
    check_ids(out / "drafter.gguf", tensors["d2t"])


def main():
    out, config = cleared(NAME), LlamaConfig(**TARGET)
    build = lambda: AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for seed, model, tokens, lead in find_target(build):
        tensors, states = random_tensors(seed), target_states(model, tokens)
        head = Head(tensors, model.model.embed_tokens.weight.detach())
        drafts = drafts_of(head, tokens, head.features(states))
        if varied(drafts):
            break
    save_model(out / "hf", model, sentencepiece)
    converted(out / "hf", out / "model.gguf", sentencepiece, VOCAB)
    check_values(out / "hf", out / "model.gguf")
    save_drafter(out / "drafter", tensors)

    stored, embeddings = load_file(out / "drafter" / "hf" / "model.safetensors"), head.embeddings
    head = Head(stored, embeddings)
    features = head.features(states)
    for change in ("midlayer.input_layernorm", "midlayer.hidden_norm", "order", "RoPE of the target", "norm before the residual"):
        changes_logits(head, Head(stored, embeddings, change), tokens, (features, features), change)
    for i in range(3):
        others = [tap - (i == j) for j, tap in enumerate(TAPS)]
        changes_logits(head, head, tokens, (features, head.features(states, others)), f"taps {others}")
    changes_drafts(drafts, Head(stored, embeddings, "output after the norm"), tokens, features, "output after the norm")
    save(NAME, head, tokens, features, drafts, seed=seed, lead=lead, taps=TAPS, feedback="before the norm of the drafter")


if __name__ == "__main__":
    main()
