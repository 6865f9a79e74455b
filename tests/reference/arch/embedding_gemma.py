"""EmbeddingGemma: Gemma 3 with two-way attention, mean pooling, and two Dense modules before normalization.

Sliding windows reach `sliding_window` / 2 positions to each side. `model.gguf` has the Dense modules as `dense_2` and `dense_3`;
`model_plain.gguf` lacks them, because the option of the converter is off by default, and gives the embeddings `plain` of
golden.json. The GGUF has w + 1, and no pattern of sliding windows: every sixth layer sees all positions."""
from importlib import import_module

import torch
from tokenizers import processors
from transformers import Gemma3TextConfig, Gemma3TextModel

from arch.common import ROOT, VOCAB, check_values, common
from arch.embedding import TEXTS, convert, floats, fresh, golden, json, randomise, save, unit, write_json
from arch.gemma import one_plus_w, subtract_one

LONGEST, MATRYOSHKA = 256, 16
LOCAL, GLOBAL = 50.0, 500.0  # the published 1e4 and 1e6 have too little effect on short texts
S, F = "sliding_attention", "full_attention"


def rope(local, full):
    return {S: {"rope_type": "default", "rope_theta": local}, F: {"rope_type": "default", "rope_theta": full}}


def vocabulary(writer):
    common.gemma(writer, VOCAB)
    writer.add_add_eos_token(True)


def extra(reference, states):
    """Returns the embeddings without Dense modules, and shortened ones."""
    means = torch.stack([x.mean(0) for x in states])
    projected = means
    for weight in dense:
        projected = projected @ weight.T
    shortened = unit(projected[:, :MATRYOSHKA])
    # The first row is for a sequence of tokens, not for a text.
    expected = torch.from_numpy(reference.encode(TEXTS[:4], truncate_dim=MATRYOSHKA, normalize_embeddings=True))
    assert (expected - shortened[1:]).abs().max() < 1e-5
    return {"plain": floats(unit(means)), "matryoshka": {"dim": MATRYOSHKA, "embeddings": floats(shortened)}}


def check(folder, file):
    check_values(folder, file, generated=("dense_2.weight", "dense_3.weight"), to_checkpoint=subtract_one)


hf = fresh("embedding_gemma")
saved = common.gemma_tokenizer(VOCAB)
tokenizer = saved.backend_tokenizer
tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A <eos>", pair="<bos> $A <eos> <bos>:1 $B:1 <eos>:1", special_tokens=[("<bos>", 2), ("<eos>", 1)])
model = randomise(Gemma3TextModel._from_config(Gemma3TextConfig(
    vocab_size=VOCAB, hidden_size=36, intermediate_size=28, num_hidden_layers=6, num_attention_heads=3, num_key_value_heads=1, head_dim=10, query_pre_attn_scalar=10,
    sliding_window=16, use_bidirectional_attention=True, layer_types=[S] * 5 + [F], max_position_embeddings=256, rms_norm_eps=1e-6, rope_parameters=rope(LOCAL, GLOBAL)),
    attn_implementation="eager"), 9, gain=1.0)
with torch.no_grad():
    one_plus_w(model)
    for p in model.parameters():
        p.copy_(p.bfloat16().float())
save(model, hf)
config = json.loads((hf / "config.json").read_text())
del config["rope_parameters"]
write_json(hf / "config.json", config | {"_sliding_window_pattern": 6, "rope_theta": GLOBAL, "rope_local_base_freq": LOCAL, "rope_scaling": None})
tokenizer.save(str(hf / "tokenizer.json"))
write_json(hf / "tokenizer_config.json", {"add_bos_token": True, "add_eos_token": True, "bos_token": "<bos>", "eos_token": "<eos>", "model_max_length": LONGEST,
                                          "pad_token": "<pad>", "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>"})
noise = torch.Generator().manual_seed(1)
dense = [(torch.randn(*shape, generator=noise) / shape[1] ** 0.5).bfloat16().float() for shape in ((60, 36), (36, 60))]
golden("embedding_gemma", model, tokenizer, pooling="mean", longest=LONGEST, causal=True, single=2, vocabulary=vocabulary, dense=dense, extra=extra, check=check,
       prompts={"query": "task: search result | query: ", "document": "title: none | text: ", "Retrieval-query": "task: search result | query: "},
       ablations=({"use_bidirectional_attention": False}, {"sliding_window": 8}, {"sliding_window": 10}, {"layer_types": [S] * 6}, {"query_pre_attn_scalar": 12},
                  {"rope_parameters": rope(LOCAL, LOCAL)}, {"rope_parameters": rope(GLOBAL, GLOBAL)}))
# The converter keeps the modules of the previous run.
import_module("conversion.gemma").EmbeddingGemma.module_paths = []
convert(hf, ROOT / "embedding_gemma/model_plain.gguf", None, None, vocabulary, dense=False)
check_values(hf, ROOT / "embedding_gemma/model_plain.gguf", to_checkpoint=subtract_one)
