"""Shared functions of the scripts of embedding models; each writes `../../golden/arch/NAME/`:

    hf/             the folder as on the Hugging Face Hub: weights in BF16, tokenizer, and the files of sentence-transformers
    model.gguf      from llama.cpp's converter: matrices BF16, the rest F32
    hidden.npy      float32 [layers, rows, dim]: the residual stream after every block, before a final norm
    embeddings.npy  float32 [5, dim]: a row per sequence, pooled, and normalized if the folder requires it
    golden.json     batch: the ids of 5 sequences; texts: texts and their ids, of which the first 4 are batch[1:];
                    prompted: for each non-empty prompt, the embedding of texts[0] with it

Every sequence runs alone, unpadded, in float32; `hidden` has the rows of all sequences in order. The
embeddings are checked against sentence-transformers on the folder, in one padded batch, and the hidden
states against a float64 forward pass on model.gguf.

Run from `tests/reference`: LLAMA_CPP=... python -m arch.bert
"""
import copy
import json
import shutil
from importlib import import_module
from importlib.metadata import version

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import AutoModel

from arch.common import ROOT, blocks, check_values, gguf, rounded, versions

RAIN = "The rain in the hills ran to the river, and the river ran on to the sea; then there was the sun, and they saw it."
SAND = "So all of them sat down on the sand, and told one another of the sea."
CORPUS = f"{RAIN} {SAND}"
# Short; changed by normalization; about 40 tokens; longer than every window; empty; spaces.
TEXTS = ("the sun", "Thé RIVER — was it 東京? 🙂", RAIN[:75], f"{SAND} They told of the rain and of the sun. {RAIN}", "", "  a\tb\n\nc  ")
POOLINGS = {"mean": lambda x: x.mean(0), "cls": lambda x: x[0], "last": lambda x: x[-1], "max": lambda x: x.max(0).values}
# Types in modules.json, up to version 5 of sentence-transformers and since version 6.
OLD_MODULES = {kind: f"sentence_transformers.models.{kind}" for kind in ("Transformer", "Pooling", "Dense", "Normalize")}
NEW_MODULES = {"Transformer": "sentence_transformers.base.modules.transformer.Transformer", "Dense": "sentence_transformers.base.modules.dense.Dense",
               "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling", "Normalize": "sentence_transformers.base.modules.normalize.Normalize"}
OLD_KEYS = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens",
            "sqrt": "pooling_mode_mean_sqrt_len_tokens", "weighted": "pooling_mode_weightedmean_tokens", "last": "pooling_mode_lasttoken"}


def randomise(model, seed, gain=1.5):
    """Sets random weights so that every part affects the output: norms differ from 1, biases from 0."""
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=rng)
            if p.dim() == 1:
                p.copy_(0.2 * noise + (1 if name.endswith("weight") else 0))
            else:
                p.copy_(noise * (0.5 if "embed" in name else gain / p.shape[1] ** 0.5))
    return rounded(model).eval()


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def wordpiece(vocab):
    """Returns a tokenizer like BERT's (with unused tokens after the first), and tokenizer_config.json of old files."""
    special = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    plain = sorted(set(CORPUS.lower()) - {" "} | set("abcdefghijklmnopqrstuvwxyz0123456789.,;!?-—"))
    words = {w.strip(",.;") for w in CORPUS.lower().split()} - {"a", "rain", "hills", "another"}
    pieces = plain + [f"##{c}" for c in plain if c.isalnum()] + sorted(words) + ["##ain", "##ill", "##oth", "##er"]
    tokens = ["[PAD]"] + [f"[unused{i}]" for i in range(vocab - 1 - len(special) - len(pieces))] + special + pieces
    ids = {token: i for i, token in enumerate(tokens)}
    assert len(tokens) == len(ids) == vocab
    t = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    t.normalizer, t.pre_tokenizer = normalizers.BertNormalizer(lowercase=True), pre_tokenizers.BertPreTokenizer()
    t.add_special_tokens(["[PAD]", *special])
    t.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[(s, ids[s]) for s in ("[CLS]", "[SEP]")])
    return t, {"do_lower_case": True, "unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]",
               "mask_token": "[MASK]", "tokenize_chinese_chars": True, "strip_accents": None, "tokenizer_class": "BertTokenizer"}


def save(model, folder):
    """Saves config.json and model.safetensors with `transformers`."""
    # A copy, because the conversion also rounds the RoPE frequencies.
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder)


def write_modules(folder, dim, pooling, dense, normalize, new, longest, prompts):
    """Writes the files of sentence-transformers; `new` selects the format of version 6."""
    kinds = ["Transformer", "Pooling", *["Dense"] * len(dense), *["Normalize"] * normalize]
    paths = [f"{i}_{kind}" if i else "" for i, kind in enumerate(kinds)]
    write_json(folder / "modules.json", [{"idx": i, "name": str(i), "path": path, "type": (NEW_MODULES if new else OLD_MODULES)[kind]}
                                         for i, (path, kind) in enumerate(zip(paths, kinds))])
    for path, weight in zip(paths[2:], dense):
        write_json(folder / path / "config.json", {"in_features": weight.shape[1], "out_features": weight.shape[0], "bias": False,
                                                   "activation_function": "torch.nn.modules.linear.Identity"})
        save_file({"linear.weight": weight}, folder / path / "model.safetensors")
    made_by = {"sentence_transformers": version("sentence-transformers") if new else "2.7.0"}
    write_json(folder / "config_sentence_transformers.json",
               {"__version__": made_by, "prompts": prompts, "default_prompt_name": None, "similarity_fn_name": "cosine"})
    if not new:
        modes = {key: pooling == mode for mode, key in OLD_KEYS.items()}
        write_json(folder / "1_Pooling/config.json", {"word_embedding_dimension": dim, **modes, "include_prompt": True})
        write_json(folder / "sentence_bert_config.json", {"max_seq_length": longest, "do_lower_case": False})
        return
    write_json(folder / "1_Pooling/config.json", {"embedding_dimension": dim, "pooling_mode": pooling, "include_prompt": True})
    write_json(folder / "sentence_bert_config.json", {
        "transformer_task": "feature-extraction", "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
        "module_output_name": "token_embeddings"})
    if normalize:
        write_json(folder / paths[-1] / "config.json", {"module_input_name": "sentence_embedding", "module_output_name": "sentence_embedding"})


def convert(folder, file, pre, hparams, vocabulary, dense=True):
    """Runs llama.cpp's converter; `pre` is the pre-tokenizer name, which it cannot detect for these vocabularies.

    `hparams` replaces the configuration read by `transformers`, `vocabulary` the writer of the vocabulary; `dense` includes the
    Dense modules."""
    conversion = import_module("conversion")
    numbers = hparams or conversion.ModelBase.load_hparams(folder, False)
    cls = conversion.get_model_class(conversion.get_model_architecture(numbers, conversion.ModelType.TEXT))
    cls.get_vocab_base_pre = lambda self, tokenizer: pre
    if vocabulary:
        cls.set_vocab = lambda self: vocabulary(self.gguf_writer)
    with torch.inference_mode():
        cls(folder, gguf.LlamaFileType.MOSTLY_BF16, file, model_name=f"tabla-test-{file.parent.name}", hparams=numbers, sentence_transformers_dense_modules=dense).write()


def run(model, ids):
    """Returns the hidden states of one sequence after every block [layers, tokens, dim] and the last ones [tokens, dim]."""
    states = []
    hooks = [b.register_forward_hook(lambda module, args, out: states.append((out if torch.is_tensor(out) else out[0]).reshape(len(ids), -1)))
             for b in blocks(model)]
    with torch.no_grad():
        last = model(torch.tensor([ids])).last_hidden_state[0]
    for hook in hooks:
        hook.remove()
    return torch.stack(states), last


def floats(x):
    """Converts float32 to JSON numbers with 9 significant digits."""
    return [floats(row) if row.dim() else float(f"{row:.9g}") for row in x]


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def golden(name, model, tokenizer, *, pooling, longest, single, normalize=True, new=False, causal=False, dense=(), prompts={}, texts=TEXTS,
           pre="jina-v2-en", folder=None, hparams=None, vocabulary=None, ablations=(), extra=None, check=check_values):
    """Writes the golden files for the existing checkpoint in `hf/`.

    causal      True for decoders
    dense       weights [out, in] of Dense modules between pooling and normalization
    single      token of the sequence of length one
    pre         tokenizer.ggml.pre of the GGUF
    folder      a copy of `hf/` that transformers can read, if it cannot read `hf/`
    hparams     configuration for the converter, if transformers cannot read it
    vocabulary  writes the tokenizer keys, if the converter cannot
    ablations   changes of the configuration that must each change the hidden states
    check       checks the values of the GGUF of a decoder
    extra       computes additional records from the sentence-transformers model and the last hidden states
    """
    out = ROOT / name
    texts = [{"text": text, "tokens": tokenizer.encode(text).ids} for text in texts]
    batch = [[single]] + [t["tokens"] for t in texts[:4]]
    results = [run(model, ids) for ids in batch]
    states = [last for _, last in results]
    hidden = torch.cat([h for h, _ in results], 1)
    embeddings = torch.stack([POOLINGS[pooling](x) for x in states])
    for weight in dense:
        embeddings = embeddings @ weight.T
    embeddings = unit(embeddings) if normalize else embeddings
    np.save(out / "hidden.npy", hidden.numpy())
    np.save(out / "embeddings.npy", embeddings.numpy())

    for change in ablations:
        other = AutoModel.from_pretrained(folder or out / "hf", dtype=torch.float32, attn_implementation="eager", **change).eval()
        moved = max((run(other, ids)[0] - h).abs().max().item() for ids, (h, _) in zip(batch, results))
        print(f"    with {change}: {moved:.5f}")
        assert moved > 4e-4, f"{name}: the hidden states do not change with {change}"

    for path in filter(None, (out / "hf", folder)):
        write_modules(path, model.config.hidden_size, {"last": "lasttoken"}.get(pooling, pooling) if new else pooling, dense, normalize, new, longest, prompts)
    reference = SentenceTransformer(str(folder or out / "hf"), device="cpu", model_kwargs={"dtype": torch.float32, "attn_implementation": "eager"})
    gap = np.abs(reference.encode([t["text"] for t in texts[:4]]) - embeddings[1:].numpy()).max()
    prompted = {name: floats(torch.from_numpy(reference.encode(TEXTS[0], prompt_name=name))) for name, prompt in prompts.items() if prompt}
    record = {"name": name, "batch": batch, "texts": texts, "pooling": pooling, "normalize": normalize, "max_seq_length": longest, "prompts": prompts, "prompted": prompted,
              "reference": f"transformers {type(model).__name__}, float32, eager attention; sentence-transformers",
              **(extra(reference, states) if extra else {}), "versions": versions() | {"sentence-transformers": version("sentence-transformers")}}
    (out / "golden.json").write_text(json.dumps(record, ensure_ascii=False) + "\n")

    convert(out / "hf", out / "model.gguf", pre, hparams, vocabulary)
    if causal:
        # `forward` supports only encoders.
        check(out / "hf", out / "model.gguf")
        gguf_gap = float("nan")
    else:
        gguf_gap = max(np.abs(forward(out / "model.gguf", ids) - h.numpy()).max() for ids, (h, _) in zip(batch, results))
    similarity = (unit(embeddings[1:]) @ unit(embeddings[1:]).T - 2 * torch.eye(4)).max()
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    print(f"{name}: {[len(b) for b in batch]} tokens, max |hidden| {hidden.abs().max():.2f}, max |embedding| {embeddings.abs().max():.2f}, max similarity {similarity:.3f}, "
          f"sentence-transformers {gap:.1e}, float64 from the GGUF {gguf_gap:.1e}, {size} bytes")
    assert gap < 1e-5, "the embeddings differ from sentence-transformers"
    assert not gguf_gap >= 5e-5, "the hidden states of the GGUF differ from those of the model"
    assert similarity < 0.98, "the embeddings are too similar"


def fresh(name):
    """Creates the empty folder `hf` of a golden."""
    shutil.rmtree(ROOT / name, ignore_errors=True)
    (ROOT / name / "hf").mkdir(parents=True)
    return ROOT / name / "hf"


def forward(file, ids):
    """Computes the hidden states after every block from the GGUF of an encoder, float64 [layers, tokens, dim]."""
    reader = gguf.GGUFReader(file)
    t = {x.name: gguf.quants.dequantize(x.data, x.tensor_type).astype(np.float64) for x in reader.tensors}
    arch = reader.fields["general.architecture"].contents()

    def meta(key, default=None):
        field = reader.fields.get(f"{arch}.{key}")
        return field.contents() if field else default

    heads, length, eps = meta("attention.head_count"), len(ids), meta("attention.layer_norm_epsilon")

    def norm(x, name):
        """LayerNorm; identity if the file has no norm of that name."""
        if f"{name}.weight" not in t:
            return x
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * t[f"{name}.weight"] + t.get(f"{name}.bias", 0)

    def linear(x, name):
        return x @ t[f"{name}.weight"].T + t.get(f"{name}.bias", 0)

    def gelu(x):
        return x / 2 * (1 + torch.erf(torch.from_numpy(x) / 2**0.5).numpy())

    def rope(x, base):
        half = x.shape[-1] // 2
        angle = np.outer(np.arange(length), base ** (-np.arange(half) / half))[:, None]
        a, b = x[..., :half], x[..., half:]
        return np.concatenate([a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)], -1)

    distance = np.abs(np.arange(length)[:, None] - np.arange(length))
    x = t["token_embd.weight"][ids]
    if "token_types.weight" in t:
        x = x + t["token_types.weight"].reshape(-1, x.shape[1])[0]
    if arch == "bert":
        x = x + t["position_embd.weight"][:length]
    x, out = norm(x, "token_embd_norm"), []
    for layer in range(meta("block_count")):
        blk = f"blk.{layer}."
        # All layers except every third attend to `window` positions, half of them on each side.
        local = layer % meta("attention.sliding_window_pattern", 1)
        window = meta("attention.sliding_window") if local else None
        h = norm(x, blk + "attn_norm")
        fused = blk + "attn_qkv.weight" in t
        qkv = np.split(linear(h, blk + "attn_qkv"), 3, -1) if fused else [linear(h, f"{blk}attn_{part}") for part in "qkv"]
        head_dim = qkv[0].shape[1] // heads
        q, k, v = (np.repeat(a.reshape(length, -1, head_dim), qkv[0].shape[1] // a.shape[1], 1) for a in qkv)
        if arch != "bert":
            base = meta("rope.freq_base_swa", 1e4) if window else meta("rope.freq_base")
            q, k = rope(q, base), rope(k, base)
        scores = np.einsum("ihd,jhd->hij", q, k) / head_dim**0.5
        if window:
            scores[:, distance > window // 2] = -np.inf
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        attended = linear(np.einsum("hij,jhd->ihd", scores, v).reshape(length, -1), blk + "attn_output")
        x = norm(x + attended, blk + "attn_output_norm")
        h = norm(x, blk + "ffn_norm")
        up = linear(h, blk + "ffn_up")
        if arch == "nomic-bert":
            gate = linear(h, blk + "ffn_gate")
            act = gate / (1 + np.exp(-gate)) * up
        elif arch == "modern-bert":
            gate, up = np.split(up, 2, -1)
            act = gelu(gate) * up
        else:
            act = gelu(up)
        x = norm(x + linear(act, blk + "ffn_down"), blk + "layer_output_norm")
        out.append(x)
    return np.stack(out)
