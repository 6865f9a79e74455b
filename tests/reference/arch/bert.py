"""BERT like all-MiniLM: mean pooling, old file format. Its tokenizer.json has padding to 128 and truncation, which embedding must ignore."""
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel

from arch.embedding import CORPUS, POOLINGS, TEXTS, floats, fresh, golden, randomise, save, unit, wordpiece, write_json

VOCAB, LONGEST, MATRYOSHKA = 200, 80, 16


def extra(reference, states):
    """Returns embeddings with other poolings, shortened embeddings, and an embedding of a text over the limit."""
    text = (CORPUS + " ") * 2
    shortened = unit(unit(torch.stack([x.mean(0) for x in states]))[:, :MATRYOSHKA])
    expected = reference.encode([t for t in TEXTS[:4]], truncate_dim=MATRYOSHKA, normalize_embeddings=True)
    assert np.abs(expected - shortened[1:].numpy()).max() < 1e-5
    return {
        "poolings": {name: floats(torch.stack([pool(x) for x in states])) for name, pool in POOLINGS.items()},
        "matryoshka": {"dim": MATRYOSHKA, "embeddings": floats(shortened)},
        "truncated": {"text": text, "tokens": reference.preprocess([text])["input_ids"][0].tolist(), "embedding": floats(torch.from_numpy(reference.encode(text)))},
    }


hf = fresh("bert")
tokenizer, config = wordpiece(VOCAB)
model = randomise(BertModel(BertConfig(
    vocab_size=VOCAB, hidden_size=44, intermediate_size=76, num_hidden_layers=3, num_attention_heads=2, max_position_embeddings=96,
    hidden_act="gelu", attn_implementation="eager")), 1)
save(model, hf)
# Old files also contain position_ids.
weights = load_file(hf / "model.safetensors")
save_file(weights | {"embeddings.position_ids": torch.arange(model.config.max_position_embeddings)[None]}, hf / "model.safetensors", {"format": "pt"})
write_json(hf / "tokenizer_config.json", config | {"model_max_length": 512})
tokenizer.enable_truncation(128)
tokenizer.enable_padding(length=128, pad_id=0, pad_token="[PAD]")
tokenizer.save(str(hf / "tokenizer.json"))
tokenizer.no_truncation()
tokenizer.no_padding()
golden("bert", model, tokenizer, pooling="mean", longest=LONGEST, single=tokenizer.token_to_id("[CLS]"), extra=extra,
       ablations=({"hidden_act": "gelu_pytorch_tanh"}, {"layer_norm_eps": 1e-2}))
