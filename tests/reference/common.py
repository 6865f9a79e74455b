"""Shared functions of the scripts in this folder: tiny checkpoints, GGUF files and golden outputs.

Each script creates a small random model with `transformers`, writes it as GGUF with its own writer,
and stores the outputs of the model next to it:

    ../golden/NAME.gguf    the weights, with a small but complete tokenizer
    ../golden/NAME.npy     float32 logits [positions, vocab] of one forward pass over `tokens`
    ../golden/NAME.json    tokens, greedy continuation of the first 8 of them, seed, versions

A numpy forward pass in float64 on the file then checks the conversion (for example the order of Q/K
rows, or a missing bias). Requires torch, transformers, gguf, numpy and tokenizers; run a script
without arguments.
"""
import json
import math
from importlib.metadata import version
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Type
from gguf import TokenType
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

GOLDEN = Path(__file__).parent.parent / "golden"
POSITIONS, PROMPT, GREEDY = 64, 8, 64
MARGIN = 1e-3  # greedy goldens need a clear winner at every step

# HF module names to GGUF tensor names, inside and outside of layers.
LAYER = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
# Substrings of the names of norms and of embeddings.
NORM, EMBED = ("norm", "ln_"), ("embed", "lm_head", "wte", "wpe")


def randomise(model, seed):
    """Sets random weights so that every part of the model affects the output: norms differ from 1, biases from 0."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=rng)
            if name.endswith("weight") and any(part in name for part in NORM):
                p.copy_(1 + 0.2 * noise)
            elif any(part in name for part in EMBED):
                # With a large tied embedding the model would only repeat its input.
                p.copy_(0.05 * noise)
            elif p.dim() == 1:
                p.copy_(0.2 * noise)
            else:
                p.copy_(noise * 1.5 / p.shape[-1] ** 0.5)
        # Layer scalars are buffers in `transformers`, not parameters.
        for name, b in model.named_buffers():
            if name.endswith("layer_scalar"):
                b.copy_(1 + 0.2 * torch.randn(b.shape, generator=rng))
    return model.eval()


def logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


def greedy(model, ids, count):
    """Returns the greedy continuation and the smallest margin of the best token over the second."""
    out, lead = list(ids), math.inf
    for _ in range(count):
        top = logits(model, out)[-1].topk(2)
        lead = min(lead, (top.values[0] - top.values[1]).item())
        out.append(top.indices[0].item())
    return out[len(ids):], lead


def random_tokens(vocab, seed, positions=POSITIONS):
    return np.random.default_rng(seed).integers(3, vocab, positions).tolist()


def find_seed(build, vocab):
    """Finds the first seed whose greedy continuation has a sufficient margin and is not repetitive."""
    for seed in range(1000):
        model, tokens = randomise(build(), seed), random_tokens(vocab, seed)
        out, lead = greedy(model, tokens[:PROMPT], GREEDY)
        if lead > MARGIN and len(set(out)) >= 12:
            return seed, model, tokens, out, lead
    raise SystemExit("no suitable seed found")


def versions():
    return {name: version(name) for name in ("torch", "transformers", "gguf", "numpy", "tokenizers")}


# Tokens of `sentencepiece` after its bytes: results of merges, and characters.
MERGED = "▁t he in er ▁a ▁the on re ▁s nd ▁and ▁w".split()
SINGLE = list("▁etaonisrhdlumw.,")
PAIRS = [("▁", "t"), ("h", "e"), ("i", "n"), ("e", "r"), ("▁", "a"), ("▁t", "he"), ("o", "n"), ("r", "e"), ("▁", "s"), ("n", "d"), ("▁a", "nd"), ("▁", "w")]


def sentencepiece(writer, vocab):
    """Writes a vocabulary like Llama 2's: three special tokens, all bytes, then tokens built by pairwise merges."""
    extra = [f"<unused{i}>" for i in range(vocab - 259 - len(MERGED) - len(SINGLE))]
    pieces = MERGED + SINGLE + extra
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + pieces)
    writer.add_token_scores([0.0] * 259 + [-float(i) for i in range(len(pieces))])
    writer.add_token_types([TokenType.UNKNOWN, TokenType.CONTROL, TokenType.CONTROL] + [TokenType.BYTE] * 256
                           + [TokenType.NORMAL] * (len(MERGED) + len(SINGLE)) + [TokenType.UNUSED] * len(extra))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(True)


def sentencepiece_tokenizer():
    """Returns the 288 tokens of `sentencepiece` in the form of Llama 2's tokenizer.json."""
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + MERGED + SINGLE
    t = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=PAIRS, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in ("<unk>", "<s>", "</s>")])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


GEMMA_SPECIALS = ["<pad>", "<eos>", "<bos>", "<unk>"]


def gemma(writer, vocab):
    """Writes a vocabulary like Gemma's: four special tokens, all bytes, then tokens built by pairwise merges; no space prefix."""
    pieces = (MERGED + SINGLE)[:vocab - 260]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    gemma_tokens(writer, pieces)


def gemma4(writer, vocab):
    """Writes the vocabulary of `gemma` in the form of Gemma 4, with merges."""
    pieces = (MERGED + SINGLE)[:vocab - 260]
    writer.add_tokenizer_model("gemma4")
    gemma_tokens(writer, pieces)
    writer.add_token_merges([" ".join(pair) for pair in PAIRS])


def gemma_tokens(writer, pieces):
    writer.add_token_list(GEMMA_SPECIALS + [f"<0x{b:02X}>" for b in range(256)] + pieces)
    writer.add_token_scores([0.0] * 260 + [-float(i) for i in range(len(pieces))])
    writer.add_token_types([TokenType.CONTROL] * 3 + [TokenType.UNKNOWN] + [TokenType.BYTE] * 256 + [TokenType.NORMAL] * len(pieces))
    writer.add_pad_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_unk_token_id(3)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)


def gemma_tokenizer(vocab):
    """Returns the tokens of `gemma` in the form of Gemma's tokenizer.json."""
    pieces = GEMMA_SPECIALS + [f"<0x{b:02X}>" for b in range(256)] + (MERGED + SINGLE)[:vocab - 260]
    t = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=PAIRS, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in GEMMA_SPECIALS])
    t.post_processor = processors.TemplateProcessing(single="<bos> $A", pair="<bos> $A <bos> $B", special_tokens=[("<bos>", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=t, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", pad_token="<pad>")


def trained_merges(vocab):
    """Returns `vocab` tokens, byte symbols and merges trained on one sentence, and the merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    text = "the rain in the hills ran to the river and the river ran on to the sea; then there was the sun, and they saw it; so all of them sat down on the sand, and told one another of the sea"
    tokenizer.train_from_iterator([text] * 3, trainers.BpeTrainer(
        vocab_size=vocab, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    spec = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(spec["vocab"], key=spec["vocab"].get)
    assert len(tokens) == vocab, f"the text yields only {len(tokens)} tokens"
    return tokens, spec["merges"]


BYTE_LEVEL_SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
# Pre-tokenizer regex of Qwen 2.
QWEN2_WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(writer, vocab):
    """Writes a vocabulary like Qwen's: byte symbols, a few merges, three special tokens at the end."""
    tokens, merges = trained_merges(vocab - 3)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens + BYTE_LEVEL_SPECIALS)
    writer.add_token_types([TokenType.NORMAL] * len(tokens) + [TokenType.CONTROL] * 3)
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(vocab - 1)
    writer.add_pad_token_id(vocab - 3)
    writer.add_add_bos_token(False)


def byte_level_tokenizer(vocab):
    """Returns the tokens of `byte_level` in the form of Qwen 2's tokenizer.json."""
    tokens, merges = trained_merges(vocab - 3)
    t = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(tokens)}, merges=[tuple(pair) for pair in merges]))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2_WORDS), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in BYTE_LEVEL_SPECIALS])
    return PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def gguf_name(name):
    stem, kind = name.rsplit(".", 1)
    if stem in OUTER:
        return f"{OUTER[stem]}.{kind}"
    _, _, layer, inner = stem.split(".", 3)
    return f"blk.{layer}.{LAYER[inner]}.{kind}"


def interleave(rows, heads):
    """Reorders Q/K rows from the halves layout of HF to the pairs (2i, 2i+1) of llama GGUF files."""
    return rows.reshape(heads, 2, -1, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def write(model, arch, name, vocabulary, quant=Type.F32, extra=None, scaling=None):
    """Writes the model; `extra` adds tensors, `scaling` adds the llama3 rope keys."""
    c = model.config
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    w = gguf.GGUFWriter(GOLDEN / f"{name}.gguf", arch)
    w.add_name(f"tabla-test-{name}")
    w.add_license("MIT OR Apache-2.0")
    w.add_file_type({Type.F32: 0, Type.F16: 1, Type.Q4_0: 2, Type.Q4_1: 3, Type.Q8_0: 7, Type.BF16: 32}[quant])
    w.add_vocab_size(c.vocab_size)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    if arch == "qwen3":
        w.add_key_length(head_dim)
        w.add_value_length(head_dim)
    if arch == "llama":
        w.add_rope_dimension_count(head_dim)
    if scaling:
        w.add_string("llama.rope.scaling.type", "llama3")
        w.add_float32("llama.rope.scaling.factor", scaling["factor"])
        w.add_float32("llama.rope.scaling.low_freq_factor", scaling["low_freq_factor"])
        w.add_float32("llama.rope.scaling.high_freq_factor", scaling["high_freq_factor"])
        w.add_uint32("llama.rope.scaling.original_context_length", scaling["original_max_position_embeddings"])
    vocabulary(w, c.vocab_size)
    for key, array in (extra or {}).items():
        w.add_tensor(key, array)
    for key, p in model.state_dict().items():
        if key == "lm_head.weight" and c.tie_word_embeddings:
            continue
        array = p.numpy()
        if arch == "llama" and ".q_proj." in key:
            array = interleave(array, c.num_attention_heads)
        if arch == "llama" and ".k_proj." in key:
            array = interleave(array, c.num_key_value_heads)
        array = np.ascontiguousarray(array)
        if array.ndim == 2 and quant != Type.F32:
            w.add_tensor(gguf_name(key), gguf.quants.quantize(array, quant), raw_dtype=quant)
        else:
            w.add_tensor(gguf_name(key), array)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def save(name, ids, answers, **facts):
    np.save(GOLDEN / f"{name}.npy", answers.numpy().astype(np.float32))
    record = {"name": name, "tokens": ids, "prompt_len": PROMPT, **facts, "versions": versions()}
    (GOLDEN / f"{name}.json").write_text(json.dumps(record) + "\n")


def llama3_factors(head_dim, base, factor, low, high, original):
    """Returns the divisor of each RoPE frequency: 1 for high, `factor` for low frequencies, interpolated between."""
    turns = original / (2 * np.pi * base ** (np.arange(0, head_dim, 2) / head_dim))
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / factor + smooth)


def forward(name, ids):
    """Computes logits from the GGUF file in float64 with numpy."""
    reader = gguf.GGUFReader(GOLDEN / f"{name}.gguf")
    t = {x.name: gguf.quants.dequantize(x.data, x.tensor_type).astype(np.float64) for x in reader.tensors}
    arch = reader.fields["general.architecture"].contents()

    def meta(key, default=None):
        field = reader.fields.get(f"{arch}.{key}")
        return field.contents() if field else default

    heads, kv_heads, eps = meta("attention.head_count"), meta("attention.head_count_kv"), meta("attention.layer_norm_rms_epsilon")
    head_dim = meta("attention.key_length", meta("embedding_length") // heads)
    base, length = meta("rope.freq_base"), len(ids)
    assert len(reader.fields["tokenizer.ggml.tokens"].data) == meta("vocab_size") == len(t["token_embd.weight"])
    factors = t.get("rope_freqs.weight", np.ones(head_dim // 2))
    if meta("rope.scaling.type") == "llama3":
        factors = llama3_factors(head_dim, base, *(meta(f"rope.scaling.{k}") for k in (
            "factor", "low_freq_factor", "high_freq_factor", "original_context_length")))
    angles = np.outer(np.arange(length), base ** (-np.arange(0, head_dim, 2) / head_dim) / factors)[:, None]
    cos, sin = np.cos(angles), np.sin(angles)
    # Pairs of elements that RoPE rotates: adjacent ones in llama files, the two halves in qwen files.
    first, second = ((slice(0, None, 2), slice(1, None, 2)) if arch == "llama"
                     else (slice(None, head_dim // 2), slice(head_dim // 2, None)))

    def norm(x, weight):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight

    def project(x, layer, part, count):
        y = x @ t[f"blk.{layer}.attn_{part}.weight"].T + t.get(f"blk.{layer}.attn_{part}.bias", 0)
        y = y.reshape(length, count, head_dim)
        weight = t.get(f"blk.{layer}.attn_{part}_norm.weight")
        return y if weight is None else norm(y, weight)

    def rotate(x):
        y = x.copy()
        y[..., first] = x[..., first] * cos - x[..., second] * sin
        y[..., second] = x[..., first] * sin + x[..., second] * cos
        return y

    x = t["token_embd.weight"][ids]
    future = np.triu(np.full((length, length), -np.inf), 1)
    for layer in range(meta("block_count")):
        h = norm(x, t[f"blk.{layer}.attn_norm.weight"])
        q, k = rotate(project(h, layer, "q", heads)), rotate(project(h, layer, "k", kv_heads))
        v = project(h, layer, "v", kv_heads)
        k, v = (np.repeat(a, heads // kv_heads, 1) for a in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / head_dim**0.5 + future
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        x = x + np.einsum("hij,jhd->ihd", scores, v).reshape(length, -1) @ t[f"blk.{layer}.attn_output.weight"].T
        h = norm(x, t[f"blk.{layer}.ffn_norm.weight"])
        gate = h @ t[f"blk.{layer}.ffn_gate.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ t[f"blk.{layer}.ffn_up.weight"].T)) @ t[f"blk.{layer}.ffn_down.weight"].T
    return norm(x, t["output_norm.weight"]) @ t.get("output.weight", t["token_embd.weight"]).T


def check(name, ids, answers):
    """Checks that the GGUF file gives the logits of transformers."""
    gap = np.abs(forward(name, ids) - answers.numpy()).max()
    print(f"{name}: max |logit| {answers.abs().max():.3f}, max difference to numpy {gap:.2e}, "
          f"{(GOLDEN / f'{name}.gguf').stat().st_size} bytes")
    assert gap < 2e-5, "the logits of the GGUF file differ from those of the model"
