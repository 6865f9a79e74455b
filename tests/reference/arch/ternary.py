"""Shared functions of the scripts of ternary models: layers as in `transformers`, files, and selection of tokens whose
activations are not close to rounding boundaries.

A BitNet layer rounds its input to 8 bits. Close to the middle of two codes, float32 rounding noise determines the code, and a
different code changes the logits by 1e-3 or more, so that implementations differ. Therefore the tokens of these goldens are
chosen one by one such that no activation of any layer is within `EDGE` of a middle, in codes, and the greedy continuation has
a margin that is robust to noise much larger than that of float32.
"""
import json
import os
import shutil

# Compiled functions of `transformers` would require a C++ compiler.
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import numpy as np
import torch
from safetensors.torch import save_file
from transformers.integrations.bitnet import AutoBitLinear, BitLinear, pack_weights

from arch.common import GREEDY, POSITIONS, PROMPT, ROOT, common, gguf, hidden, load, logits, on_hub, tokenizer_of
from common import interleave, versions

LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
EDGE, BATCH = 2e-3, 48
LEAD, NOISE, NOISE_RUNS = 5e-3, 1e-5, 20
# The fork of ggml that has this type is not in the `gguf` package. Layout: `quantize_i2_s` of BitNet's ggml-bitnet-mad.cpp.
I2_S, MOSTLY_I2_S = 36, 40
SUB_NORMS = {"self_attn.attn_sub_norm": "attn_sub_norm", "mlp.ffn_sub_norm": "ffn_sub_norm"}


def round_weights(model):
    """Rounds all weights to values that both BF16 and F16 represent."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.bfloat16().half().bfloat16().float())


def layers(model):
    return [(name, m) for name, m in model.named_modules() if name.endswith(LINEAR)]


def ternarise(model, scale_of, linear=AutoBitLinear, **options):
    """Replaces the layers by those of `transformers` for packed weights; `scale_of` computes weight_scale from mean |w|."""
    round_weights(model)
    for name, old in layers(model):
        mean = old.weight.detach().abs().mean()
        codes = (old.weight.detach() / mean).round().clamp(-1, 1)
        new = linear(old.in_features, old.out_features, bias=False, dtype=torch.float32, **options)
        with torch.no_grad():
            new.weight = torch.nn.Parameter(codes, False) if linear is AutoBitLinear else torch.nn.Buffer(pack_weights(codes.clone()))
            new.weight_scale.fill_(scale_of(mean))
        new.codes, new.master = codes.to(torch.int8), old.weight.detach()
        model.set_submodule(name, new)
    return model.eval()


def distances(model, rows):
    """Returns the smallest distance of activations to the middle of two codes over all layers: [batch, tokens]."""
    gaps = []

    def look(module, args):
        x = args[0].double()
        if module.rms_norm is not None:
            x = module.rms_norm(args[0]).double()
        x = x * (127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-5))
        gaps.append((x - x.floor() - 0.5).abs().amin(-1))

    hooks = [m.register_forward_pre_hook(look) for _, m in layers(model)]
    with torch.no_grad():
        model(torch.tensor(rows))
    for hook in hooks:
        hook.remove()
    return torch.stack(gaps).amin(0)


def clear_tokens(model, vocab, seed, count=POSITIONS, edge=EDGE):
    """Returns random tokens without activations within `edge` of the middle of two codes; None if there are none."""
    rng, tokens = np.random.default_rng(seed), []
    while len(tokens) < count:
        candidates = 3 + rng.permutation(vocab - 3)
        for part in np.split(candidates, range(BATCH, len(candidates), BATCH)):
            clear = (distances(model, [tokens + [int(c)] for c in part])[:, -1] >= edge).nonzero()
            if len(clear):
                tokens.append(int(part[clear[0, 0]]))
                break
        else:
            return None
    return tokens


def is_robust(model, tokens, continuation):
    """Returns true if the greedy continuation does not change with noise on the embeddings."""
    noise = torch.Generator().manual_seed(0)
    keep = lambda module, args, out: out * (1 + NOISE * torch.randn(out.shape, generator=noise))
    hook = model.get_input_embeddings().register_forward_hook(keep)
    answers = [logits(model, tokens + continuation)[len(tokens) - 1:-1].argmax(-1).tolist() for _ in range(NOISE_RUNS)]
    hook.remove()
    return all(answer == continuation for answer in answers)


def find_seed(build, vocab, edge=EDGE):
    """Finds the first seed with clear tokens and a robust greedy continuation that is not repetitive."""
    for seed in range(1000):
        model = build(seed)
        prompt = clear_tokens(model, vocab, seed, PROMPT, edge)
        if prompt is None:
            continue
        out, lead = common.greedy(model, prompt, GREEDY)
        if lead > LEAD and len(set(out)) >= 12 and len(set(out[-12:])) >= 3 and is_robust(model, prompt, out):
            tokens = clear_tokens(model, vocab, seed, POSITIONS, edge)
            if tokens is not None:
                return seed, model, tokens, out, lead
    raise SystemExit("no suitable seed found")


def i2_s(codes, scale):
    """Encodes a tensor: the first 32 of every 128 codes are in the high bits; the scale follows all codes."""
    blocks = (codes.numpy().reshape(-1, 4, 32) + 1).astype(np.uint8)
    packed = blocks[:, 0] << 6 | blocks[:, 1] << 4 | blocks[:, 2] << 2 | blocks[:, 3]
    tail = np.zeros(8, np.float32)
    tail[0] = scale
    return np.concatenate([packed.reshape(-1), tail.view(np.uint8)]).view(np.int8)


def keys(model, arch, name):
    """Returns a GGUF writer with the keys of I2_S files."""
    c = model.config
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    w = gguf.GGUFWriter(None, arch)
    w.add_name(f"tabla-test-{name}")
    w.add_vocab_size(c.vocab_size)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_rope_dimension_count(head_dim)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    w.add_file_type(MOSTLY_I2_S)
    w.add_quantization_version(2)
    return w


def write(w, model, file, names, scale_of, permuted=False, norm_type=np.float32):
    """Writes the tensors of a model: I2_S, with embeddings in F16. `scale_of` returns the scale of a layer."""
    c = model.config
    ternary = dict(layers(model))

    def add(name, array):
        stem, _, kind = name.rpartition(".")
        prefix = ""
        if "layers." in stem:
            _, layer, stem = stem[stem.index("layers."):].split(".", 2)
            prefix = f"blk.{layer}."
        path = f"{prefix}{(common.LAYER | common.OUTER | names)[stem]}.{kind}"
        if name.removesuffix(".weight") in ternary:
            layer = ternary[name.removesuffix(".weight")]
            heads = {"q_proj": c.num_attention_heads, "k_proj": c.num_key_value_heads}.get(stem.rpartition(".")[2])
            codes = layer.codes if heads is None or not permuted else torch.from_numpy(interleave(layer.codes.numpy(), heads).copy())
            w.add_tensor(path, i2_s(codes, scale_of(layer)), raw_shape=codes.shape, raw_dtype=I2_S)
        else:
            w.add_tensor(path, array.astype(np.float16 if array.ndim == 2 else norm_type))

    for name, t in model.state_dict().items():
        if not name.endswith(".weight_scale") and not (name == "lm_head.weight" and c.tie_word_embeddings):
            add(name, t.float().numpy())
    w.write_header_to_file(file)
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def packed(model):
    """Returns the tensors of the checkpoint: four rows of codes per byte, everything else BF16."""
    ternary, out = dict(layers(model)), {}
    for name, t in model.state_dict().items():
        if name.removesuffix(".weight") in ternary:
            out[name] = pack_weights(ternary[name.removesuffix(".weight")].codes.float())
        elif not (name == "lm_head.weight" and model.config.tie_word_embeddings):
            out[name] = t.to(torch.bfloat16)
    return out


def loaded(folder):
    """Loads the packed checkpoint with `transformers` in float32; by default its layers are BF16."""
    model = torch.nn.Module.float(load(folder))
    for _, layer in layers(model):
        layer.dtype = torch.float32
    return model


def save_hub(model, folder, quantization, tokenizer):
    """Saves the packed checkpoint as on the Hugging Face Hub; `quantization` has additional keys of quantization_config."""
    folder.mkdir(parents=True)
    save_file({name: t.contiguous() for name, t in packed(model).items()}, folder / "model.safetensors", metadata={"format": "pt"})
    config = on_hub(model.config.to_diff_dict() | {"dtype": "bfloat16", "architectures": [type(model).__name__]})
    config["quantization_config"] = {"quant_method": "bitnet"} | quantization
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    tokenizer.save_pretrained(folder)


def golden(name, build, keys, quantization, scale_of, *, vocabulary=common.byte_level, names=SUB_NORMS, permuted=False, edge=EDGE):
    """Writes the folder of one architecture, like `arch.common.golden`.

    build           returns the model of a seed
    keys            returns a GGUF writer with the keys of a model
    quantization    keys of quantization_config
    scale_of        returns the scale of a layer
    permuted        True if the GGUF has the rows of Q and K in pairs
    """
    torch.set_num_threads(1)
    out = ROOT / name
    shutil.rmtree(out, ignore_errors=True)
    seed, model, tokens, continuation, lead = find_seed(build, build(0).config.vocab_size, edge)
    answers = logits(model, tokens)
    save_hub(model, out / "hf", quantization, tokenizer_of(vocabulary, model.config.vocab_size))
    gap = (logits(loaded(out / "hf"), tokens) - answers).abs().max().item()
    assert gap < 1e-6, f"{name}: the logits of the files differ from the saved model by {gap}"
    write(keys(model), model, out / "model.gguf", names, scale_of, permuted)
    record(out, model, tokens, answers, {"greedy": continuation, "lead": lead, "seed": seed, "edge": distances(model, [tokens]).min().item()})


def record(out, model, tokens, answers, facts):
    np.save(out / "logits.npy", answers.numpy())
    np.save(out / "hidden.npy", hidden(model, tokens).numpy())
    linear = type(layers(model)[0][1]).__name__
    (out / "golden.json").write_text(json.dumps({
        "name": out.name, "tokens": tokens, "prompt_len": PROMPT, **facts,
        "reference": f"transformers {type(model).__name__} with {linear}, float32, eager attention", "versions": versions()}) + "\n")
    sizes = {f.relative_to(out).as_posix(): f.stat().st_size for f in sorted(out.rglob("*")) if f.is_file()}
    print(f"{out.name}: {facts}, max |logit| {answers.abs().max():.2f}, {sum(sizes.values())} bytes {sizes}")
