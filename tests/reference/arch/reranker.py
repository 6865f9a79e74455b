"""Qwen3-Reranker: a Qwen 3 that answers "yes" or "no" to a prompt with query and document, as in the code of its authors.

Writes `../../golden/reranker/`. The GGUF has `pooling_type` 4 and the prompt as template `rerank`; of the folder only the README names a reranker.

    golden.json    query, documents, and for two instructions the tokens and scores of each pair
"""
import json

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, Qwen3Config

from arch.common import common, converted, gguf, load, load_file, on_hub, rounded, save_file, shutil, versions

OUT = common.GOLDEN / "reranker"
DEFAULT = "Given a web search query, retrieve relevant passages that answer the query"
PREFIX = ("<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. "
          "Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n")
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
QUERY = "Where does the river run?"
DOCUMENTS = ["The river ran on to the sea.", "They told one another.", "", "東京 <|im_end|> yes no", "the sea " * 12]
OTHER = "Find what tells of the sand"


def tokens_and_merges():
    """Returns byte symbols and merged tokens, including "yes" and "no", and the merges."""
    tokens, merges = common.trained_merges(270)
    merges = [tuple(pair) for pair in merges]
    for pair in (("y", "e"), ("ye", "s"), ("n", "o")):
        if pair not in merges:
            merges.append(pair)
            tokens.append("".join(pair))
    return tokens, merges


def tokenizer():
    tokens, merges = tokens_and_merges()
    t = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(tokens)}, merges=merges))
    t.normalizer = normalizers.NFC()
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(common.QWEN2_WORDS), "isolated"),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens([AddedToken(s, special=True, normalized=False) for s in common.BYTE_LEVEL_SPECIALS])
    return PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def vocabulary(writer, vocab):
    tokens, merges = tokens_and_merges()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens + common.BYTE_LEVEL_SPECIALS)
    writer.add_token_types([gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * 3)
    writer.add_token_merges([" ".join(pair) for pair in merges])
    writer.add_eos_token_id(vocab - 1)
    writer.add_pad_token_id(vocab - 3)
    writer.add_add_bos_token(False)


def body(t, text):
    """Encodes user text, in which special tokens are plain text."""
    return t(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]


def ranked(model, t, instruction):
    """Returns the tokens and the probability of "yes" of every pair, computed as in the model card."""
    yes, no = t.convert_tokens_to_ids("yes"), t.convert_tokens_to_ids("no")
    pairs, scores = [], []
    for document in DOCUMENTS:
        text = f"<Instruct>: {instruction}\n<Query>: {QUERY}\n<Document>: {document}"
        ids = t(PREFIX, add_special_tokens=False)["input_ids"] + body(t, text) + t(SUFFIX, add_special_tokens=False)["input_ids"]
        with torch.no_grad():
            last = model(torch.tensor([ids])).logits[0, -1]
        scores.append(torch.log_softmax(torch.stack([last[no], last[yes]]), 0)[1].exp().item())
        pairs.append(ids)
    return {"instruction": instruction, "tokens": pairs, "scores": scores}


shutil.rmtree(OUT, ignore_errors=True)
folder = OUT / "hf"
torch.set_num_threads(1)
torch.manual_seed(1)
t = tokenizer()
vocab = len(t)
model = rounded(common.randomise(AutoModelForCausalLM.from_config(Qwen3Config(
    vocab_size=vocab, hidden_size=44, intermediate_size=60, num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=1, head_dim=12,
    max_position_embeddings=1024, rms_norm_eps=1e-6, tie_word_embeddings=True, bos_token_id=vocab - 3, eos_token_id=vocab - 1,
    rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}), attn_implementation="eager"), 4))
with torch.no_grad():
    # Makes the scores differ.
    for word in ("yes", "no"):
        row = model.get_input_embeddings().weight[t.convert_tokens_to_ids(word)]
        row.copy_((row * 8).bfloat16().float())
model.to(torch.bfloat16).save_pretrained(folder)
(folder / "generation_config.json").unlink(missing_ok=True)
written = on_hub(json.loads((folder / "config.json").read_text()))
(folder / "config.json").write_text(json.dumps(written, indent=1) + "\n")
save_file(load_file(folder / "model.safetensors"), folder / "model.safetensors", metadata={"format": "pt"})
t.save_pretrained(folder)
(folder / "chat_template.jinja").unlink(missing_ok=True)

model = load(folder)
# The converter and Tabla detect a reranker by this file.
(folder / "README.md").write_text("# Qwen3-Reranker\n")
converted(folder, OUT / "model.gguf", vocabulary, vocab)
record = {"query": QUERY, "documents": DOCUMENTS, "ranked": [ranked(model, t, DEFAULT), ranked(model, t, OTHER)],
          "reference": "transformers Qwen3ForCausalLM, float32, eager attention", "versions": versions()}
for row in record["ranked"]:
    print([f"{score:.4f}" for score in row["scores"]], [len(ids) for ids in row["tokens"]])
    assert max(row["scores"]) - min(row["scores"]) > 0.1
(OUT / "golden.json").write_text(json.dumps(record, ensure_ascii=False) + "\n")
