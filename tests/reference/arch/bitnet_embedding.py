"""BitNet embeddings (0.6B): Qwen 3 with ternary weights and a norm before each of the seven linear layers, whose output is
quantized to 8 bits. The embedding is that of the last token, always <|endoftext|>, normalized.

In the GGUF (qwen3, I2_S, norms F16) the norms are `attn_q_norm_in` ... `ffn_down_norm_in`; in the checkpoint of `transformers`
(`use_rms_norm`) they are `q_proj.rms_norm`. golden.json and the arrays have the format of the other embedding models: `texts`
are `batch[1:]`, and hidden.npy has the rows of all sequences in order."""
import json
import shutil

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import processors
from transformers import AutoModel, Qwen3Config, Qwen3Model

from arch import ternary
from arch.common import ROOT, VOCAB, blocks, gguf, randomise, versions
from arch.embedding import write_modules
from common import byte_level, byte_level_tokenizer

LENGTHS, EDGE, END = (5, 9, 20, 40), 1e-3, VOCAB - 3
QUANTIZATION = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "offline", "use_rms_norm": True, "rms_norm_eps": 1e-6}
NORMS = {f"{path}.rms_norm": f"{name}_norm_in" for path, name in ternary.common.LAYER.items() if path.endswith(ternary.LINEAR)}


def build(seed):
    config = Qwen3Config(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, head_dim=32,
        max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=True, bos_token_id=END, eos_token_id=END,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, attn_implementation="eager")
    model = ternary.ternarise(randomise(Qwen3Model(config), seed), lambda mean: mean.bfloat16().float(), use_rms_norm=True, rms_norm_eps=1e-6)
    noise = torch.Generator().manual_seed(seed)
    for _, layer in ternary.layers(model):
        layer.rms_norm.weight.data = 1 + 0.2 * torch.randn(layer.in_features, generator=noise)
    ternary.round_weights(model)
    return model


def tokenizer():
    fast = byte_level_tokenizer(VOCAB)
    fast.backend_tokenizer.post_processor = processors.TemplateProcessing(single="$A <|endoftext|>", pair="$A <|endoftext|> $B <|endoftext|>",
                                                                           special_tokens=[("<|endoftext|>", END)])
    return fast


def clear_text(model, encode, pieces, length, rng):
    """Returns a text of about `length` tokens without activations close to the middle of two codes."""
    text, tokens = "", []
    while len(tokens) < 2 * length:
        for piece in rng.permutation(pieces):
            ids = encode(text + piece)
            rows = ternary.distances(model, [ids + [END]])[0] if ids[:-1] == tokens else torch.zeros(2)
            if rows[-2] < EDGE:
                continue
            if len(ids) >= length and rows[-1] >= EDGE:
                return text + piece
            longer = text + piece, ids
            if len(ids) < length:
                break
        text, tokens = longer
    raise SystemExit("no suitable text found")


def run(model, ids):
    """Returns the hidden states of one sequence after every block [layers, tokens, dim], and its embedding [dim]."""
    states = []
    hooks = [b.register_forward_hook(lambda module, args, out: states.append((out if torch.is_tensor(out) else out[0])[0])) for b in blocks(model)]
    with torch.no_grad():
        last = model(torch.tensor([ids])).last_hidden_state[0, -1]
    for hook in hooks:
        hook.remove()
    return torch.stack(states), last / last.norm()


def write(model, file):
    w = ternary.keys(model, "qwen3", "bitnet_embedding")
    w.add_key_length(model.config.head_dim)
    w.add_value_length(model.config.head_dim)
    w.add_pooling_type(gguf.PoolingType.LAST)
    byte_level(w, VOCAB)
    w.remove_key("tokenizer.ggml.eos_token_id")
    w.add_eos_token_id(END)
    w.add_add_eos_token(True)
    ternary.write(w, model, file, NORMS | {"embed_tokens": "token_embd", "norm": "output_norm"}, lambda layer: layer.weight_scale.item(), norm_type=np.float16)


if __name__ == "__main__":
    torch.set_num_threads(1)
    out = ROOT / "bitnet_embedding"
    shutil.rmtree(out, ignore_errors=True)
    folder = out / "hf"
    fast, model = tokenizer(), build(0)
    encode = lambda text: fast(text, add_special_tokens=False)["input_ids"]
    pieces = [c for c in "abcdefghijklmnopqrstuvwxyz ,.;THEANDSO"] + [" the", " and", " sea", " ran", " river", " on"]
    rng = np.random.default_rng(0)
    texts = [{"text": t, "tokens": fast(t)["input_ids"]} for t in (clear_text(model, encode, pieces, n, rng) for n in LENGTHS)]
    batch = [ternary.clear_tokens(model, VOCAB, 0, 1, EDGE)] + [t["tokens"] for t in texts]
    results = [run(model, ids) for ids in batch]

    ternary.save_hub(model, folder, QUANTIZATION, fast)
    write_modules(folder, model.config.hidden_size, "last", (), True, False, 256, {})
    reference = torch.nn.Module.float(AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager"))
    gap = max((run(reference, ids)[0] - h).abs().max().item() for ids, (h, _) in zip(batch, results))
    assert gap < 1e-6, f"the hidden states of the files differ from the saved model by {gap}"
    write(model, out / "model.gguf")

    np.save(out / "hidden.npy", torch.cat([h for h, _ in results], 1).numpy())
    np.save(out / "embeddings.npy", torch.stack([e for _, e in results]).numpy())
    (out / "golden.json").write_text(json.dumps({
        "name": out.name, "batch": batch, "texts": texts, "pooling": "last", "normalize": True, "max_seq_length": 256, "prompts": {}, "prompted": {}, "seed": 0,
        "edge": min(ternary.distances(model, [ids]).min().item() for ids in batch),
        "reference": "transformers Qwen3Model with AutoBitLinear and its norms, float32, eager attention; pooled here", "versions": versions()}) + "\n")
    size = sum(f.stat().st_size for f in out.rglob("*") if f.is_file())
    print(f"{out.name}: {[len(b) for b in batch]} tokens, {[t['text'] for t in texts]}, {size} bytes")
