"""EmbeddingGemma: Gemma 3 that sees both directions, and two dense layers between pooling and normalisation. Tensors without a prefix.

Five layers of six see 8 positions to either side: `sliding_window` counts both sides, and the GGUF does not say the pattern.
"""
from tokenizers import processors
from transformers import Gemma3TextConfig, Gemma3TextModel

from arch.common import common, rounded, sentencepiece, torch
from arch.embedding import SAND, TEXTS, fresh, golden, json, randomise, save, write_json

VOCAB, LONGEST, WIDE = 288, 128, 44


def vocabulary(writer):
    """Texts end in </s>."""
    sentencepiece(writer, VOCAB)
    del writer.kv_data[0]["tokenizer.ggml.add_eos_token"]
    writer.add_add_eos_token(True)


def bases(full, sliding):
    """What RoPE counts from in layers of both kinds."""
    return {f"{kind}_attention": {"rope_type": "default", "rope_theta": base} for kind, base in (("full", full), ("sliding", sliding))}


hf = fresh("gemma_embedding")
tokenizer = common.sentencepiece_tokenizer().backend_tokenizer
tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> <s> $B </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
model = randomise(Gemma3TextModel._from_config(Gemma3TextConfig(
    vocab_size=VOCAB, hidden_size=30, intermediate_size=44, num_hidden_layers=6, num_attention_heads=3, num_key_value_heads=1, head_dim=12,
    max_position_embeddings=256, rms_norm_eps=1e-6, sliding_window=16, query_pre_attn_scalar=12, use_bidirectional_attention=True,
    bos_token_id=1, eos_token_id=2, pad_token_id=0, rope_parameters=bases(1e6, 1e4)), attn_implementation="eager"), 7, gain=1.0)
with torch.no_grad():
    for weight in (p for p in model.parameters() if p.dim() == 1):
        weight -= 1  # a norm of Gemma multiplies by 1 + w
rounded(model)
dense = [(torch.randn(shape, generator=torch.Generator().manual_seed(8)) / 6).bfloat16().float() for shape in ((WIDE, 30), (30, WIDE))]
save(model, hf)
# The keys of the published file.
config = json.loads((hf / "config.json").read_text())
for key in ("layer_types", "rope_parameters"):
    config.pop(key)
config["torch_dtype"] = config.pop("dtype")
write_json(hf / "config.json", config | {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": None, "_sliding_window_pattern": 6})
tokenizer.save(str(hf / "tokenizer.json"))
write_json(hf / "tokenizer_config.json", {"add_bos_token": True, "add_eos_token": True, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<unk>",
                                          "model_max_length": 2048, "tokenizer_class": "PreTrainedTokenizerFast"})
golden("gemma_embedding", model, tokenizer, pooling="mean", longest=LONGEST, single=1, dense=dense, vocabulary=vocabulary, texts=(*TEXTS[:3], f"{SAND} They told.", *TEXTS[4:]),
       prompts={"query": "task: search result | query: ", "document": "title: none | text: "},
       matters=({"use_bidirectional_attention": False, "sliding_window": 9}, {"sliding_window": 14}, {"sliding_window": 18}, {"rope_parameters": bases(1e4, 1e4)},
                {"rope_parameters": bases(1e6, 1e6)}, {"query_pre_attn_scalar": 16}, {"hidden_activation": "gelu"}))
