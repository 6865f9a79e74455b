"""Qwen 3.5 with its MTP head: a block of full attention with an output gate, whose input is a projection of an embedding and a hidden state.

- Input of entry p: `mtp.fc [rms(embedding of token p + 1; pre_fc_norm_embedding) | rms(hidden state p; pre_fc_norm_hidden)]`, the embedding first
  (vLLM `models/qwen3_5_mtp.py`, llama.cpp `src/models/qwen35.cpp` `graph_mtp`). Embeddings and output matrix are those of the target.
- The hidden state is that after the final norm of the target, `h_nextn` in llama.cpp; vLLM passes what the target model returns.
- The output of `mtp.norm` goes to the output matrix, and takes the place of the hidden state in the next step (both projects).
- The checkpoint has the w of norms with 1 + w, for the four norms of the block and for `pre_fc_norm_embedding`, `pre_fc_norm_hidden`
  and `mtp.norm` alike (all `Qwen3_5RMSNorm` in vLLM); llama.cpp's converter adds 1 to all of them.
- The embedding at position 0 is not masked (vLLM masks it for DeepSeek and GLM, not for Qwen).

The GGUF counts the MTP block in `block_count`; it is the last block, with `nextn.eh_proj`, `nextn.enorm`, `nextn.hnorm` and `nextn.shared_head_norm`."""
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Qwen3_5TextConfig

from arch.common import as_saved, check_values
from arch.delta_net import STEP, realistic, to_checkpoint
from arch.qwen3_5 import CONFIG
from common import byte_level
from drafting.common import (
    attend, changes_drafts, changes_logits, cleared, converted, drafts_of, find_target, mlp, random_matrix, random_norm, rms, rotate, save,
    save_model, target_states, varied)

NAME = "qwen3_5_mtp"
LAYER = "mtp.layers.0"


def random_tensors(config, seed):
    """Returns BF16 tensors of a head; norms are multiples of STEP near 0, because the model adds 1."""
    rng, dim, head = torch.Generator().manual_seed(seed), config.hidden_size, config.head_dim
    queries, keys, width = config.num_attention_heads * head, config.num_key_value_heads * head, config.intermediate_size
    matrices = {"mtp.fc": (dim, 2 * dim), f"{LAYER}.self_attn.q_proj": (2 * queries, dim), f"{LAYER}.self_attn.k_proj": (keys, dim),
                f"{LAYER}.self_attn.v_proj": (keys, dim), f"{LAYER}.self_attn.o_proj": (dim, queries), f"{LAYER}.mlp.gate_proj": (width, dim),
                f"{LAYER}.mlp.up_proj": (width, dim), f"{LAYER}.mlp.down_proj": (dim, width)}
    norms = {"mtp.pre_fc_norm_embedding": dim, "mtp.pre_fc_norm_hidden": dim, "mtp.norm": dim, f"{LAYER}.input_layernorm": dim,
             f"{LAYER}.post_attention_layernorm": dim, f"{LAYER}.self_attn.q_norm": head, f"{LAYER}.self_attn.k_norm": head}
    tensors = {name: random_matrix(rng, *shape) for name, shape in matrices.items()}
    tensors |= {name: ((random_norm(rng, size) - 1) / STEP).round() * STEP for name, size in norms.items()}
    return {f"{name}.weight": t.bfloat16() for name, t in tensors.items()}


class Head:
    """The head in float64. `changes` are names of features to change."""

    def __init__(self, config, tensors, *changes):
        self.config, self.changes = config, changes
        self.weights = {name: t.double() for name, t in tensors.items()}

    def token(self, index):
        return index

    def norm(self, x, name):
        weight = self.weights[f"{name}.weight"]
        return rms(x, weight if "norms without 1" in self.changes else 1 + weight, self.config.rms_norm_eps)

    def attention(self, x):
        c, w = self.config, lambda part: self.weights[f"{LAYER}.self_attn.{part}_proj.weight"]
        q, gate = (x @ w("q").T).unflatten(-1, (c.num_attention_heads, 2, c.head_dim)).unbind(-2)
        k, v = ((x @ w(part).T).unflatten(-1, (-1, c.head_dim)) for part in "kv")
        q, k = self.norm(q, f"{LAYER}.self_attn.q_norm"), self.norm(k, f"{LAYER}.self_attn.k_norm")
        size, positions = int(c.head_dim * c.rope_parameters["partial_rotary_factor"]), torch.arange(len(x))
        if "RoPE" not in self.changes:
            q, k = (torch.cat([rotate(y[..., :size], positions, c.rope_parameters["rope_theta"]), y[..., size:]], -1) for y in (q, k))
        if "KV cache" in self.changes:
            y = v.repeat_interleave(c.num_attention_heads // c.num_key_value_heads, 1)
        else:
            y = attend(q, k, v, c.head_dim**-0.5)
        if "output gate" not in self.changes:
            y = y * gate.sigmoid()
        return y.flatten(-2) @ w("o").T

    def __call__(self, ids, states):
        embeddings = self.norm(self.weights["model.embed_tokens.weight"][ids], "mtp.pre_fc_norm_embedding")
        parts = embeddings, self.norm(states, "mtp.pre_fc_norm_hidden")
        x = torch.cat(parts[::-1] if "order" in self.changes else parts, -1) @ self.weights["mtp.fc.weight"].T
        x = x + self.attention(self.norm(x, f"{LAYER}.input_layernorm"))
        x = x + mlp(self.norm(x, f"{LAYER}.post_attention_layernorm"), self.weights, f"{LAYER}.mlp")
        out = self.norm(x, "mtp.norm")
        return out @ self.weights["model.embed_tokens.weight"].T, x if "output before the norm" in self.changes else out


def main():
    out, config = cleared(NAME), Qwen3_5TextConfig(**CONFIG)
    build = lambda: AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for seed, model, tokens, lead in find_target(build, realistic):
        tensors, states = random_tensors(config, seed), target_states(model, tokens)
        drafts = drafts_of(Head(config, dict(model.state_dict()) | tensors), tokens, states[-1])
        if varied(drafts):
            break
    hub = {"attn_output_gate": True, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False}
    save_model(out / "hf", model, byte_level, tensors, layout=as_saved, hub=hub)
    converted(out / "hf", out / "model.gguf", byte_level, config.vocab_size)
    check_values(out / "hf", out / "model.gguf", to_checkpoint=to_checkpoint)

    stored = load_file(out / "hf" / "model.safetensors")
    head = Head(config, stored)
    for change in ("norms without 1", "RoPE", "KV cache", "output gate", "order"):
        changes_logits(head, Head(config, stored, change), tokens, (states[-1], states[-1]), change)
    changes_logits(head, head, tokens, (states[-1], states[-2]), "hidden state before the final norm")
    changes_drafts(drafts, Head(config, stored, "output before the norm"), tokens, states[-1], "output before the norm")
    save(NAME, head, tokens, states[-1], drafts, seed=seed, lead=lead, taps="after the final norm", feedback="after mtp.norm")


if __name__ == "__main__":
    main()
