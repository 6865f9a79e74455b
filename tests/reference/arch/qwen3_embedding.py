"""Qwen3-Embedding: a decoder with last-token pooling; the tokenizer appends <|endoftext|>, which is not its eos_token.

As in the published files, the tensors lack the prefix `model.`, although config.json has Qwen3ForCausalLM.
"""
from tokenizers import pre_tokenizers, processors
from transformers import Qwen3Config, Qwen3Model

from arch.common import common, on_hub
from arch.embedding import fresh, golden, json, randomise, save, write_json

VOCAB, LONGEST = 275, 128

hf = fresh("qwen3_embedding")
saved = common.byte_level_tokenizer(VOCAB)
tokenizer = saved.backend_tokenizer
end = tokenizer.token_to_id("<|endoftext|>")
tokenizer.post_processor = processors.Sequence([
    processors.ByteLevel(trim_offsets=False, use_regex=False),
    processors.TemplateProcessing(single="$A <|endoftext|>", pair="$A $B:1 <|endoftext|>:1", special_tokens=[("<|endoftext|>", end)])])
model = randomise(Qwen3Model._from_config(Qwen3Config(
    vocab_size=VOCAB, hidden_size=44, intermediate_size=76, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=12,
    max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=True, bos_token_id=end, eos_token_id=VOCAB - 1,
    rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}), attn_implementation="eager"), 6, gain=1.0)
save(model, hf)
config = on_hub(json.loads((hf / "config.json").read_text()))
write_json(hf / "config.json", config | {"architectures": ["Qwen3ForCausalLM"]})
tokenizer.save(str(hf / "tokenizer.json"))
write_json(hf / "tokenizer_config.json", {"add_prefix_space": False, "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "model_max_length": 131072,
                                          "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": None})
golden("qwen3_embedding", model, tokenizer, pooling="last", longest=LONGEST, causal=True, single=end, pre="qwen2",
       prompts={"query": "Instruct: tell of the sea\nQuery:", "document": ""},
       ablations=({"rms_norm_eps": 1e-2}, {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}))
