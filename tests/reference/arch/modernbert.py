"""ModernBERT: local attention to 8 positions on each side except in every third layer, two RoPE bases, GeGLU, no norm before the first attention."""
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import ModernBertConfig, ModernBertModel

from arch.embedding import CORPUS, fresh, golden, json, randomise, save, write_json

VOCAB, LONGEST = 320, 120
SPECIAL = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]


def byte_level():
    """Byte symbols and merges, with BERT's special tokens at the end."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([CORPUS] * 3, trainers.BpeTrainer(
        vocab_size=VOCAB - len(SPECIAL), initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    t.add_special_tokens(SPECIAL)
    assert t.get_vocab_size() == VOCAB
    ends = [(s, t.token_to_id(s)) for s in ("[CLS]", "[SEP]")]
    t.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=ends)
    return t


def bases(full, sliding):
    """RoPE bases of full and local layers."""
    return {f"{kind}_attention": {"rope_type": "default", "rope_theta": base} for kind, base in (("full", full), ("sliding", sliding))}


if __name__ == "__main__":
    hf = fresh("modernbert")
    tokenizer = byte_level()
    ids = {s: tokenizer.token_to_id(s) for s in SPECIAL}
    model = randomise(ModernBertModel._from_config(ModernBertConfig(
        vocab_size=VOCAB, hidden_size=36, intermediate_size=44, num_hidden_layers=4, num_attention_heads=3, max_position_embeddings=128, local_attention=16,
        rope_parameters=bases(160000.0, 10000.0),
        pad_token_id=ids["[PAD]"], cls_token_id=ids["[CLS]"], bos_token_id=ids["[CLS]"], sep_token_id=ids["[SEP]"], eos_token_id=ids["[SEP]"]),
        attn_implementation="eager"), 5, gain=1.0)
    save(model, hf)
    # Keys of published files: without layer_norm_eps the converter writes no epsilon that llama.cpp reads.
    config = json.loads((hf / "config.json").read_text())
    del config["rope_parameters"], config["layer_types"]
    config["torch_dtype"] = config.pop("dtype")
    write_json(hf / "config.json", config | {"layer_norm_eps": 1e-05, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0})
    tokenizer.save(str(hf / "tokenizer.json"))
    write_json(hf / "tokenizer_config.json", {"cls_token": "[CLS]", "mask_token": "[MASK]", "model_input_names": ["input_ids", "attention_mask"], "model_max_length": LONGEST,
                                              "pad_token": "[PAD]", "sep_token": "[SEP]", "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"})
    golden("modernbert", model, tokenizer, pooling="mean", longest=LONGEST, single=ids["[CLS]"], new=True, pre="gpt-2", ablations=(
        {"local_attention": 14}, {"local_attention": 18}, {"rope_parameters": bases(1e4, 1e4)}, {"rope_parameters": bases(1.6e5, 1.6e5)},
        {"layer_types": ["full_attention"] * 4}, {"hidden_activation": "gelu_pytorch_tanh"}, {"norm_eps": 1e-2}))
