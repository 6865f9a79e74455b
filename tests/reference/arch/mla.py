"""Shared functions of the scripts of models with latent attention: sizes, the keys of config.json of published files, and ablations."""
import torch

RANK, ROTARY, KEY, VALUE = 32, 8, 16, 14
HEADS, QUERY_RANK = 3, 20
SIZES = dict(
    vocab_size=275, hidden_size=36, intermediate_size=40, num_hidden_layers=3, num_attention_heads=HEADS, num_key_value_heads=HEADS, kv_lora_rank=RANK,
    qk_rope_head_dim=ROTARY, qk_nope_head_dim=KEY, v_head_dim=VALUE, bos_token_id=272, eos_token_id=274, pad_token_id=None, tie_word_embeddings=False,
    attention_bias=False, moe_intermediate_size=8, num_experts_per_tok=3)


def yarn(mscale):
    return {"rope_type": "yarn", "rope_theta": 100.0, "factor": 40.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0,
            "mscale": mscale, "mscale_all_dim": mscale}


def on_hub(config):
    """Returns config.json with the keys of the published files."""
    rope = config.pop("rope_parameters")
    config["torch_dtype"] = config.pop("dtype")
    for key in ("transformers_version", "head_dim", "qk_head_dim", "mlp_bias"):
        config.pop(key, None)
    scaling = {key: value for key, value in rope.items() if key not in ("rope_theta", "rope_type", "partial_rotary_factor")}
    return config | {"rope_theta": rope["rope_theta"], "rope_scaling": scaling | {"type": "yarn"} if scaling else None}


def mtp_block(tensors, config):
    """Returns random tensors of a block that predicts a further token; its layer has the shapes of the last one. Published files also have
    copies of the embeddings and of the output matrix in it."""
    dim, count = config["hidden_size"], config["num_hidden_layers"]
    noise, last, path = torch.Generator().manual_seed(0), f"model.layers.{count - 1}.", f"model.layers.{count}."
    layer = {name.replace(last, path): t for name, t in tensors.items() if name.startswith(last)}
    shapes = {"enorm": (dim,), "hnorm": (dim,), "eh_proj": (dim, 2 * dim), "shared_head.norm": (dim,)}
    more = layer | {f"{path}{name}.weight": torch.empty(shape, dtype=torch.bfloat16) for name, shape in shapes.items()}
    return {name: torch.randn(t.shape, generator=noise).to(t.dtype) for name, t in more.items()}


def attentions(model):
    return [m for m in model.modules() if hasattr(m, "kv_b_proj")]


def latent_norm(model):
    for m in attentions(model):
        m.kv_a_layernorm = torch.nn.Identity()


def query_norm(model):
    for m in attentions(model):
        m.q_a_layernorm = torch.nn.Identity()


def rotary(model):
    for m in model.modules():
        if hasattr(m, "inv_freq"):
            m.inv_freq.zero_()


def half_split(model):
    """Rotates pairs of the two halves instead of neighbours."""
    order = torch.arange(ROTARY).reshape(2, -1).T.flatten()
    for m in attentions(model):
        queries = (m.q_proj if m.q_lora_rank is None else m.q_b_proj).weight
        rows = queries.data.reshape(HEADS, KEY + ROTARY, -1)
        queries.data = torch.cat([rows[:, :KEY], rows[:, KEY:][:, order]], 1).reshape(queries.shape)
        latents = m.kv_a_proj_with_mqa.weight
        latents.data = torch.cat([latents.data[:RANK], latents.data[RANK:][order]])


def shared_key(model):
    """Removes the part of the keys that all heads share."""
    for m in attentions(model):
        m.kv_a_proj_with_mqa.weight.data[RANK:] = 0


def values_first(model):
    """Reads the rows of values before those of keys."""
    for m in attentions(model):
        rows = m.kv_b_proj.weight.data.reshape(HEADS, KEY + VALUE, -1)
        m.kv_b_proj.weight.data = torch.cat([rows[:, VALUE:], rows[:, :VALUE]], 1).reshape(m.kv_b_proj.weight.shape)


def mscale(model):
    """Divides the scores by the root of the head dimension only."""
    for m in attentions(model):
        m.scaling = (KEY + ROTARY) ** -0.5


def interpolation(model):
    """Uses frequencies without YaRN."""
    for m in model.modules():
        if hasattr(m, "inv_freq"):
            m.inv_freq = m.config.rope_parameters["rope_theta"] ** (-torch.arange(0, ROTARY, 2) / ROTARY)


ABLATIONS = (latent_norm, rotary, half_split, shared_key, values_first)
YARN_ABLATIONS = (mscale, interpolation)
