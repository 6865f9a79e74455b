"""Shared functions of the scripts of models with Gated DeltaNet layers: weights in the value range of released models, and ablations.

In float32 the chunked form of `transformers` is the reference; a float64 copy of the model, which `rounding_error` compares,
runs the stepwise recurrence in float64."""
import json
import sys

import torch

from arch.common import ROOT, load, logits

# Rates of decay: one step multiplies the state of a head by exp(-rate * softplus(..)).
RATES = (0.002, 0.9)
# Norm weights are multiples of this, so that 1 + w is exact in BF16, because `mlx-lm` adds 1 in BF16.
STEP = 2**-7


def recurrence(query, key, value, g, beta, **_):
    """Gated delta rule, step by step in float64."""
    repeats = value.shape[2] // key.shape[2]
    unit = lambda x: x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    query, key = (unit(x.double()).repeat_interleave(repeats, 2) for x in (query, key))
    query = query / query.shape[-1] ** 0.5
    state, out = torch.zeros(*value.shape[::2], key.shape[-1], value.shape[-1], dtype=torch.float64), []
    for t in range(value.shape[1]):
        k = key[:, t, :, :, None]
        state = state * g[:, t, :, None, None].double().exp()
        delta = beta[:, t, :, None].double() * (value[:, t].double() - (state * k).sum(-2))
        state = state + k * delta[:, :, None]
        out.append((state * query[:, t, :, :, None]).sum(-2))
    return torch.stack(out, 1), state


def exact(modeling):
    """Replaces the chunked form in a module of `transformers` by `recurrence` for float64."""
    chunked = modeling.torch_chunk_gated_delta_rule
    modeling.torch_chunk_gated_delta_rule = lambda query, *rest, **options: (chunked if query.dtype == torch.float32 else recurrence)(query, *rest, **options)


def mixers(model):
    """Returns the DeltaNet layers."""
    return [m for m in model.modules() if hasattr(m, "A_log")]


def attentions(model):
    return [m for m in model.modules() if hasattr(m, "q_norm")]


def realistic(model):
    """Sets norm weights near 0, because the model adds 1, and decays from slow to fast heads."""
    rng = torch.Generator().manual_seed(0)
    for name, p in model.named_parameters():
        if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
            p.data = ((p.data - 1) / STEP).round() * STEP
    for m in mixers(model):
        rates = torch.logspace(*torch.tensor(RATES).log10(), len(m.A_log))
        m.A_log.data = rates[torch.randperm(len(rates), generator=rng)].log()
    return model


def check_decay(name):
    """Checks that most decays of one step are between about 0.5 and 0.999."""
    model, ids, decays = load(ROOT / name / "hf"), json.loads((ROOT / name / "golden.json").read_text())["tokens"], []
    for m in mixers(model):
        def keep(module, args, kwargs):
            x = kwargs["hidden_states"]
            a = module.in_proj_a(x) if hasattr(module, "in_proj_a") else module.in_proj_ba(x).reshape(*x.shape[:2], module.num_k_heads, 2, -1)[:, :, :, 1].flatten(2)
            decays.append((-module.A_log.exp() * torch.nn.functional.softplus(a + module.dt_bias)).exp().flatten())
        m.register_forward_pre_hook(keep, with_kwargs=True)
    logits(model, ids)
    low, middle, high = torch.cat(decays).quantile(torch.tensor([0.05, 0.5, 0.95])).tolist()
    print(f"    decays: {low:.3f} {middle:.3f} {high:.4f}")
    assert 0.2 < low < 0.8 and 0.9 < middle and high > 0.99


def decay(model):
    for m in mixers(model):
        m.A_log.data.fill_(-50)


def write_strength(model):
    for m in mixers(model):
        if hasattr(m, "in_proj_b"):
            m.in_proj_b.weight.data.zero_()
        else:
            m.in_proj_ba.weight.data.unflatten(0, (m.num_k_heads, 2, -1))[:, 0] = 0


def convolution(model):
    """Keeps only the tap of the same position."""
    for m in mixers(model):
        m.conv1d.weight.data[..., :-1] = 0


def output_norm(model):
    for m in mixers(model):
        m.norm.forward = lambda x, gate, w=m.norm.weight: w * x * torch.nn.functional.silu(gate)


def output_gate(model):
    for m in mixers(model):
        m.norm.forward = lambda x, gate, norm=m.norm.forward: norm(x, torch.full_like(gate, 1.278464))  # silu(1.278464) = 1


def replaced_rule(model, change):
    """Replaces the rule by `change(rule, query, key, value, options)`, only while the layers of this model run."""
    for m in mixers(model):
        module = sys.modules[type(m).__module__]
        rule = module.torch_chunk_gated_delta_rule

        def before(*_, module=module, rule=rule):
            module.torch_chunk_gated_delta_rule = lambda query, key, value, **options: change(rule, query, key, value, options)

        def after(*_, module=module, rule=rule):
            module.torch_chunk_gated_delta_rule = rule
        m.register_forward_pre_hook(before)
        m.register_forward_hook(after)


def unit_keys(model):
    """Replaces the L2 norm of queries and keys by a factor, which must be small, because long keys let the state grow."""
    replaced_rule(model, lambda rule, query, key, value, options: rule(query * 0.3, key * 0.3, value, **options | {"use_qk_l2norm_in_kernel": False}))


def head_groups(model):
    """Reads the key heads in the order of GGUF files: value head j reads key head j modulo their count."""
    tiled = lambda x, value: x.repeat(1, 1, value.shape[2] // x.shape[2], 1)
    replaced_rule(model, lambda rule, query, key, value, options: rule(tiled(query, value), tiled(key, value), value, **options))


def attention_gate(model):
    """Opens the output gates of attention."""
    for m in attentions(model):
        dim = m.head_dim
        weight = m.q_proj.weight.data.reshape(-1, 2, dim, m.q_proj.in_features)
        weight[:, 1] = 0
        m.o_proj.weight.data *= 2  # sigmoid(0) = 0.5


def rotary(model):
    """Applies RoPE to all of the head dimension."""
    for m in model.modules():
        if hasattr(m, "inv_freq"):
            half, theta = attentions(model)[0].head_dim // 2, m.config.rope_parameters["rope_theta"]
            m.inv_freq = theta ** (-torch.arange(half) / half)


ABLATIONS = (decay, write_strength, convolution, output_norm, output_gate, unit_keys, head_groups, attention_gate, rotary)


def to_checkpoint(name, array):
    """Maps the values of a GGUF to those of the checkpoint: norms have 1 added, `ssm_a` is -exp(A_log)."""
    if name.endswith("ssm_a"):
        # Rounded, because log is not the exact inverse of exp.
        return torch.from_numpy(array.copy()).neg().log().bfloat16().float().numpy()
    return array - 1 if name.endswith("norm.weight") and not name.endswith("ssm_norm.weight") else array


def nested(text, vision, tower, model_type):
    """Returns the layout of config.json of a multimodal file, and the function that converts the tensors: it nests the names of the
    text model, and adds a random vision tower and MTP block."""
    def layout(config):
        more = {"attn_output_gate": True, "dtype": "bfloat16", "mamba_ssm_dtype": "float32", "model_type": f"{model_type}_text",
                "mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False}
        return {"architectures": [config["architectures"][0].replace("ForCausalLM", "ForConditionalGeneration")], "image_token_id": 248056,
                "model_type": model_type, "text_config": text | more, "tie_word_embeddings": text["tie_word_embeddings"],
                "transformers_version": "4.57.0.dev0", "video_token_id": 248057, "vision_config": vision | {"model_type": model_type},
                "vision_end_token_id": 248054, "vision_start_token_id": 248053}

    def weights(tensors):
        rename = lambda name: name.replace("model.", "model.language_model.", 1)
        f32 = ("A_log", "linear_attn.norm.weight")
        return ({rename(name): t.float() if name.endswith(f32) else t for name, t in tensors.items()} | mtp_block(tensors, text)
                | {f"model.visual.{name}": t for name, t in noise_like(tower.state_dict()).items()})
    return layout, weights


def noise_like(tensors):
    noise = torch.Generator().manual_seed(0)
    return {name: torch.randn(t.shape, generator=noise).to(torch.bfloat16) for name, t in tensors.items()}


def mtp_block(tensors, text):
    """Returns random tensors of an MTP block, whose layer has the shapes of the last layer, which must be one of attention."""
    dim, last = text["hidden_size"], f"model.layers.{text['num_hidden_layers'] - 1}."
    layer = {name.replace(last, "mtp.layers.0."): t for name, t in tensors.items() if name.startswith(last)}
    shapes = {"fc": (dim, 2 * dim), "norm": (dim,), "pre_fc_norm_embedding": (dim,), "pre_fc_norm_hidden": (dim,)}
    return noise_like(layer | {f"mtp.{name}.weight": torch.empty(shape) for name, shape in shapes.items()})


def stacked(tensors):
    """Stacks the experts: gate_up_proj [experts, 2 * width, dim] with gate rows first, down_proj [experts, dim, width]."""
    out = {name: t for name, t in tensors.items() if ".experts." not in name}
    for path in sorted({name.partition(".experts.")[0] for name in tensors if ".experts." in name}):
        count = sum(name.startswith(f"{path}.experts.") for name in tensors) // 3
        gate, up, down = (torch.stack([tensors[f"{path}.experts.{i}.{part}_proj.weight"] for i in range(count)]) for part in ("gate", "up", "down"))
        out |= {f"{path}.experts.gate_up_proj": torch.cat([gate, up], 1), f"{path}.experts.down_proj": down}
    return out
