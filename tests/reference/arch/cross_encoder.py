"""Cross-encoders: models that score a pair of texts in one sequence. Writes `../../golden/cross_encoder/NAME/`:

    hf/            the folder as on the Hugging Face Hub: weights in BF16, tokenizer, activation function in config.json
    model.gguf     from llama.cpp's converter
    hidden.npy     float32 [layers, rows, dim]: the residual stream after every block, rows of all pairs in order
    golden.json    max_length: limit of a sequence in tokens
                   activation: name of the default activation function
                   pairs: query and document, and the tokens and token types of the sequence
                   logits: for each pair a list with a number per label
                   scores: the same after the activation function, from sentence-transformers

Every pair runs alone, unpadded, in float32. The last document is too long for the limit and loses its end. The GGUF of BERT lacks the
pooler, as all files of this converter do, so that its scores cannot be computed.

Run from `tests/reference`: LLAMA_CPP=... python -m arch.cross_encoder
"""
from importlib.metadata import version
from inspect import signature

import numpy as np
import torch
from sentence_transformers import CrossEncoder
from transformers import (BertConfig, BertForSequenceClassification, ModernBertConfig, ModernBertForSequenceClassification, PreTrainedTokenizerFast, XLMRobertaConfig,
                          XLMRobertaForSequenceClassification)

from arch import modernbert, roberta
from arch.common import common, check_values, gguf, shutil, versions
from arch.embedding import RAIN, SAND, blocks, convert, floats, forward, json, randomise, save, wordpiece, write_json

ROOT = common.GOLDEN / "cross_encoder"
LIMIT = 72
QUERY = "Where does the river run?"
PAIRS = [(QUERY, "the river ran on to the sea."), (QUERY, "They told one another."), (QUERY, ""), ("東京 — the SUN?", "Thé RIVER 🙂\nand the sea"), (QUERY, QUERY),
         ("the sun", f"{SAND} {RAIN} {SAND} {RAIN}")]
IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"
ENDS = ["[CLS]", "[SEP]"]


def run(model, ids, types):
    """Returns the hidden states after every block [layers, tokens, dim] and the logits."""
    states, parts = [], {"input_ids": torch.tensor([ids])}
    if "token_type_ids" in signature(model.forward).parameters:
        parts["token_type_ids"] = torch.tensor([types])
    hooks = [b.register_forward_hook(lambda module, args, out: states.append((out if torch.is_tensor(out) else out[0]).reshape(len(ids), -1))) for b in blocks(model)]
    with torch.no_grad():
        logits = model(**parts).logits[0]
    for hook in hooks:
        hook.remove()
    return torch.stack(states), logits


def golden(name, model, tokenizer, tokenizer_config, *, config={}, drop=(), activation="Identity", pre="jina-v2-en", files={}, ablations=(), complete=True):
    """Writes the golden files of a model.

    config      keys of config.json that override those of `transformers`
    drop        keys to remove
    activation  expected default activation function
    pre         tokenizer.ggml.pre of the GGUF
    files       additional files of the folder
    ablations   functions of the pairs of tokens and types, or of the model, that must each change the logits
    complete    False if the GGUF lacks the pooler
    """
    out = ROOT / name
    shutil.rmtree(out, ignore_errors=True)
    hf = out / "hf"
    hf.mkdir(parents=True)
    save(model, hf)
    written = json.loads((hf / "config.json").read_text())
    written["torch_dtype"] = written.pop("dtype")
    write_json(hf / "config.json", {key: value for key, value in written.items() if key not in drop} | config)
    tokenizer.save(str(hf / "tokenizer.json"))
    write_json(hf / "tokenizer_config.json", tokenizer_config | {"model_max_length": LIMIT})
    for file, data in files.items():
        (hf / file).write_bytes(data)

    tokenizer.enable_truncation(LIMIT)
    encodings = [tokenizer.encode(*pair) for pair in PAIRS]
    results = [run(model, e.ids, e.type_ids) for e in encodings]
    logits = torch.stack([row for _, row in results])
    for change in ablations:
        other = type(model).from_pretrained(hf, dtype=torch.float32, attn_implementation="eager").eval()
        rows = change(other, encodings)
        moved = (rows - logits).abs().max().item()
        print(f"    without {change.__name__}: {moved:.4f}")
        assert moved > 2e-4, f"{name}: the logits do not change with {change}"
    reference = CrossEncoder(str(hf), device="cpu", model_kwargs={"dtype": torch.float32, "attn_implementation": "eager"})
    scores = torch.from_numpy(reference.predict(PAIRS)).reshape(logits.shape)
    expected = logits.sigmoid() if activation == "Sigmoid" else logits
    gap = (scores - expected).abs().max().item()
    np.save(out / "hidden.npy", torch.cat([states for states, _ in results], 1).numpy())
    pairs = [{"query": query, "document": document, "tokens": e.ids, "types": e.type_ids} for (query, document), e in zip(PAIRS, encodings)]
    record = {"name": name, "max_length": LIMIT, "activation": type(reference.activation_fn).__name__, "labels": [label for _, label in sorted(model.config.id2label.items())],
              "pairs": pairs, "logits": floats(logits), "scores": floats(scores), "reference": f"transformers {type(model).__name__}, float32, eager attention; sentence-transformers",
              "versions": versions() | {"sentence-transformers": version("sentence-transformers")}}
    (out / "golden.json").write_text(json.dumps(record, ensure_ascii=False) + "\n")

    convert(hf, out / "model.gguf", pre, None, None)
    names = {t.name for t in gguf.GGUFReader(out / "model.gguf").tensors}
    assert "cls.output.weight" in names and ("cls.weight" in names) == complete, f"{name}: {sorted(n for n in names if n.startswith('cls'))}"
    if complete:
        gguf_gap = max(np.abs(forward(out / "model.gguf", e.ids) - states.numpy()).max() for e, (states, _) in zip(encodings, results))
    else:
        check_values(hf, out / "model.gguf", excluded=("pooler",))
        gguf_gap = float("nan")
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    print(f"{name}: {[len(e) for e in encodings]} tokens, logits {[f'{x:.3f}' for x in logits.flatten()]}, sentence-transformers {gap:.1e}, float64 from the GGUF {gguf_gap:.1e}, {size} bytes")
    assert record["activation"] == activation and gap < 1e-5, "the scores differ from sentence-transformers"
    assert not gguf_gap >= 5e-5, "the hidden states of the GGUF differ from those of the model"
    assert (logits.std(0) > 0.1).all(), "the logits of the pairs are too similar"


def rows(model, encodings, types=lambda types: types):
    return torch.stack([run(model, e.ids, types(e.type_ids))[1] for e in encodings])


def token_types(model, encodings):
    return rows(model, encodings, lambda types: [0] * len(types))


def pooler(model, encodings):
    """Gives the first hidden state to the classifier."""
    model.bert.pooler.forward = lambda x: x[:, 0]
    return rows(model, encodings)


def dense(model, encodings):
    model.classifier.dense.weight.data = torch.eye(model.config.hidden_size)
    return rows(model, encodings)


def head(model, encodings):
    model.head.forward = lambda x: x
    return rows(model, encodings)


def head_norm(model, encodings):
    model.head.norm = torch.nn.Identity()
    return rows(model, encodings)


def pooling(model, encodings):
    """Takes the other pooling."""
    model.config.classifier_pooling = {"mean": "cls", "cls": "mean"}[model.config.classifier_pooling]
    return rows(model, encodings)


def tanh_gelu(model, encodings):
    for module in model.modules():
        if isinstance(module, torch.nn.Module) and type(module).__name__ == "GELUActivation":
            module.forward = lambda x: torch.nn.functional.gelu(x, approximate="tanh")
    return rows(model, encodings)


def bert():
    """MS MARCO MiniLM: token types, pooler, and raw logits as scores, in the format of old files."""
    tokenizer, settings = wordpiece(200)
    model = randomise(BertForSequenceClassification(BertConfig(
        vocab_size=200, hidden_size=44, intermediate_size=76, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=96, num_labels=1,
        attn_implementation="eager")), 1)
    golden("bert", model, tokenizer, settings, config={"sbert_ce_default_activation_function": IDENTITY}, complete=False, ablations=(token_types, pooler))


def xlm_roberta(name, seed, labels, activation, **config):
    """BGE reranker: a dense layer with tanh and a projection on the first hidden state; several labels as in NLI models."""
    spm, tokenizer = roberta.unigram()
    model = randomise(XLMRobertaForSequenceClassification(XLMRobertaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=36, intermediate_size=60, num_hidden_layers=2, num_attention_heads=3, max_position_embeddings=98,
        type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2, layer_norm_eps=1e-5, id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)}, attn_implementation="eager")), seed)
    settings = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "mask_token": "<mask>", "pad_token": "<pad>", "sep_token": "</s>",
                "tokenizer_class": "XLMRobertaTokenizer", "unk_token": "<unk>"}
    golden(name, model, tokenizer, settings, config=config, activation=activation, files={"sentencepiece.bpe.model": spm}, ablations=(dense,))


def modern_bert(name, seed, kind, activation, function):
    """GTE and Ettin rerankers: a head of dense layer, GELU and norm on the mean or on the first hidden state."""
    tokenizer = modernbert.byte_level()
    ids = {s: tokenizer.token_to_id(s) for s in modernbert.SPECIAL}
    model = randomise(ModernBertForSequenceClassification._from_config(ModernBertConfig(
        vocab_size=modernbert.VOCAB, hidden_size=36, intermediate_size=44, num_hidden_layers=4, num_attention_heads=3, max_position_embeddings=128, local_attention=16,
        classifier_pooling=kind, num_labels=1, rope_parameters=modernbert.bases(160000.0, 10000.0),
        pad_token_id=ids["[PAD]"], cls_token_id=ids["[CLS]"], bos_token_id=ids["[CLS]"], sep_token_id=ids["[SEP]"], eos_token_id=ids["[SEP]"]),
        attn_implementation="eager"), seed, gain=1.0)
    settings = {"cls_token": "[CLS]", "mask_token": "[MASK]", "model_input_names": ["input_ids", "attention_mask"], "pad_token": "[PAD]", "sep_token": "[SEP]",
                "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}
    golden(name, model, tokenizer, settings, config={
        "layer_norm_eps": 1e-05, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0,
        "sentence_transformers": {"activation_fn": function, "version": "4.0.1"}}, drop=("rope_parameters", "layer_types"),
        activation=activation, pre="gpt-2", ablations=(head, head_norm, pooling, tanh_gelu))


if __name__ == "__main__":
    torch.set_num_threads(1)
    bert()
    xlm_roberta("xlm_roberta", 7, ["LABEL_0"], "Sigmoid")
    xlm_roberta("xlm_roberta_labels", 8, ["contradiction", "entailment", "neutral"], "Identity", sbert_ce_default_activation_function=None)
    modern_bert("modernbert_mean", 5, "mean", "Sigmoid", SIGMOID)
    modern_bert("modernbert_cls", 6, "cls", "Identity", IDENTITY)
