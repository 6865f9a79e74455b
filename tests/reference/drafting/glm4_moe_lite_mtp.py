"""GLM-4.7-Flash with its MTP head, which is the layer after the last one: latent attention and experts, as in other layers.

- Input of entry p: `eh_proj [rms(embedding of token p + 1; enorm) | rms(hidden state p; hnorm)]`, the embedding first (vLLM
  `models/glm4_moe_lite_mtp.py`, llama.cpp `src/models/deepseek2.cpp` `graph_mtp`). Norms are plain w.
- The layer has its own `embed_tokens` and `shared_head.head`. In published files they are copies of those of the target; here they differ from
  them, and those of the layer are the right ones (llama.cpp, vLLM).
- The hidden state is that after the final norm of the target: `h_nextn` in llama.cpp; vLLM passes what the target model returns.
- The output of `shared_head.norm` goes to `shared_head.head`, and takes the place of the hidden state in the next step: llama.cpp, SGLang
  (`deepseek_nextn.py`) and current versions of `deepseek_mtp.py` of vLLM. Earlier versions, and its `glm4_moe_lite_mtp.py`, pass the residual stream
  before this norm, which differs by the weights of the norm and lowers the acceptance of later draft tokens.
- vLLM replaces the embedding of entry 0 by zeros, a remnant of a layout in which entry p had the hidden state of position p - 1. SGLang does not,
  nor did training; it is not done here.
- The latent norms of the block have the epsilon of those of the target, which does not matter here, because the latents are not small.

The GGUF counts the block in `block_count`; it is the last block, with the tensors `nextn.eh_proj`, `enorm`, `hnorm`, `shared_head_norm`,
`shared_head_head` and `embed_tokens`. The logits of the target do not depend on this block."""
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, Glm4MoeLiteConfig

from arch.common import ROUTER_MARGIN, check_values, router_lead, smallest_lead
from arch.glm4_moe_lite import HUB
from arch.mla import HEADS, KEY, QUERY_RANK, RANK, ROTARY, SIZES, VALUE, on_hub
from arch.moe import f32_biases, random_biases
from common import byte_level
from drafting.common import (
    attend, changes_drafts, changes_logits, cleared, converted, drafts_of, find_target, mlp, random_matrix, random_norm, rms, rotate, save,
    save_model, target_states, varied)

NAME = "glm4_moe_lite_mtp"
DIM, VOCAB, WIDTH, EXPERTS, USED = SIZES["hidden_size"], SIZES["vocab_size"], SIZES["moe_intermediate_size"], 8, SIZES["num_experts_per_tok"]
EPS, LATENT_EPS, BASE, SCALE = 1e-5, 1e-6, 10000.0, 1.8
LAYER = f"model.layers.{SIZES['num_hidden_layers']}"


def random_tensors(seed):
    rng = torch.Generator().manual_seed(seed)
    matrices = {"eh_proj": (DIM, 2 * DIM), "shared_head.head": (VOCAB, DIM), "self_attn.q_a_proj": (QUERY_RANK, DIM),
                "self_attn.q_b_proj": (HEADS * (KEY + ROTARY), QUERY_RANK), "self_attn.kv_a_proj_with_mqa": (RANK + ROTARY, DIM),
                "self_attn.kv_b_proj": (HEADS * (KEY + VALUE), RANK), "self_attn.o_proj": (DIM, HEADS * VALUE), "mlp.gate": (EXPERTS, DIM)}
    for path in [f"mlp.experts.{i}" for i in range(EXPERTS)] + ["mlp.shared_experts"]:
        matrices |= {f"{path}.gate_proj": (WIDTH, DIM), f"{path}.up_proj": (WIDTH, DIM), f"{path}.down_proj": (DIM, WIDTH)}
    norms = {"enorm": DIM, "hnorm": DIM, "shared_head.norm": DIM, "input_layernorm": DIM, "post_attention_layernorm": DIM,
             "self_attn.q_a_layernorm": QUERY_RANK, "self_attn.kv_a_layernorm": RANK}
    tensors = {f"{name}.weight": random_matrix(rng, *shape) for name, shape in matrices.items()}
    tensors |= {f"{name}.weight": random_norm(rng, size) for name, size in norms.items()}
    tensors |= {"embed_tokens.weight": 0.05 * torch.randn(VOCAB, DIM, generator=rng), "mlp.gate.e_score_correction_bias": 0.15 * torch.randn(EXPERTS, generator=rng)}
    return f32_biases({f"{LAYER}.{name}": t.bfloat16() for name, t in tensors.items()})


class Head:
    """The head in float64. `changes` are names of features to change; `lead` is the smallest lead of a chosen expert over the next one."""

    def __init__(self, tensors, *changes):
        self.weights, self.changes, self.lead = {name: t.double() for name, t in tensors.items()}, changes, torch.inf

    def token(self, index):
        return index

    def norm(self, x, name, eps=EPS):
        return rms(x, self.weights[f"{LAYER}.{name}.weight"], eps)

    def project(self, x, name):
        return x @ self.weights[f"{LAYER}.{name}.weight"].T

    def attention(self, x):
        positions = torch.arange(len(x))
        turn = lambda y: y if "RoPE" in self.changes else rotate(y, positions, BASE, adjacent=True)
        q = self.project(self.norm(self.project(x, "self_attn.q_a_proj"), "self_attn.q_a_layernorm", LATENT_EPS), "self_attn.q_b_proj")
        q, rotated = q.unflatten(-1, (HEADS, KEY + ROTARY)).split((KEY, ROTARY), -1)
        latent, shared = self.project(x, "self_attn.kv_a_proj_with_mqa").split((RANK, ROTARY), -1)
        k, v = (self.project(self.norm(latent, "self_attn.kv_a_layernorm", LATENT_EPS), "self_attn.kv_b_proj")
                .unflatten(-1, (HEADS, KEY + VALUE)).split((KEY, VALUE), -1))
        q, k = torch.cat([q, turn(rotated)], -1), torch.cat([k, turn(shared[:, None]).expand(-1, HEADS, -1)], -1)
        return self.project(attend(q, k, v, (KEY + ROTARY) ** -0.5).flatten(-2), "self_attn.o_proj")

    def experts(self, x):
        scores = self.project(x, "mlp.gate").sigmoid()
        biased = scores + self.weights[f"{LAYER}.mlp.gate.e_score_correction_bias"]
        self.lead = min(self.lead, smallest_lead(biased, USED))
        chosen = biased.topk(USED, -1).indices
        weights = scores.gather(-1, chosen)
        weights = torch.zeros_like(scores).scatter(-1, chosen, weights / weights.sum(-1, keepdim=True) * SCALE)
        routed = sum(weights[:, i, None] * mlp(x, self.weights, f"{LAYER}.mlp.experts.{i}") for i in range(EXPERTS))
        return routed if "shared expert" in self.changes else routed + mlp(x, self.weights, f"{LAYER}.mlp.shared_experts")

    def __call__(self, ids, states):
        embeddings = self.weights["model.embed_tokens.weight" if "embeddings of the target" in self.changes else f"{LAYER}.embed_tokens.weight"][ids]
        if "zeros in entry 0" in self.changes:
            embeddings[0] = 0
        parts = self.norm(embeddings, "enorm"), self.norm(states, "hnorm")
        x = self.project(torch.cat(parts[::-1] if "order" in self.changes else parts, -1), "eh_proj")
        x = x + self.attention(self.norm(x, "input_layernorm"))
        x = x + self.experts(self.norm(x, "post_attention_layernorm"))
        out = self.norm(x, "shared_head.norm")
        matrix = "lm_head.weight" if "output matrix of the target" in self.changes else f"{LAYER}.shared_head.head.weight"
        return out @ self.weights[matrix].T, x if "output before the norm" in self.changes else out


def main():
    out = cleared(NAME)
    config = Glm4MoeLiteConfig(
        **SIZES, q_lora_rank=QUERY_RANK, n_routed_experts=EXPERTS, n_shared_experts=1, routed_scaling_factor=SCALE, n_group=1, topk_group=1, norm_topk_prob=True,
        rms_norm_eps=EPS, max_position_embeddings=256, rope_interleave=True, rope_parameters={"rope_type": "default", "rope_theta": BASE})

    def build():
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        model.set_experts_implementation("eager")
        return model
    for seed, model, tokens, lead in find_target(build, random_biases, lambda model, tokens: router_lead(model, tokens) > ROUTER_MARGIN):
        tensors, states = random_tensors(seed), target_states(model, tokens)[-2:]
        head = Head(tensors)
        drafts = drafts_of(head, tokens, states[-1])
        if varied(drafts) and head.lead > ROUTER_MARGIN:
            break
    save_model(out / "hf", model, byte_level, tensors, layout=on_hub, hub=HUB, drop=("mlp_layer_types", "rope_interleave"), weights=f32_biases)
    converted(out / "hf", out / "model.gguf", byte_level, VOCAB)
    check_values(out / "hf", out / "model.gguf")

    stored = load_file(out / "hf" / "model.safetensors")
    head = Head(stored)
    for change in ("embeddings of the target", "output matrix of the target", "order", "RoPE", "shared expert", "zeros in entry 0"):
        changes_logits(head, Head(stored, change), tokens, (states[-1], states[-1]), change)
    changes_logits(head, head, tokens, (states[-1], states[-2]), "hidden state before the final norm")
    changes_drafts(drafts, Head(stored, "output before the norm"), tokens, states[-1], "output before the norm")
    save(NAME, head, tokens, states[-1], drafts, seed=seed, lead=lead, taps="after the final norm", feedback="after shared_head.norm")


if __name__ == "__main__":
    main()
