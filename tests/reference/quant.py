"""Writes a small llama in five tensor types: quant_{f16,bf16,q8_0,q4_0,q4_1}.

All matrices, including the embedding, have that type; norms are F32. The logits are from
transformers in float32 on the dequantized weights, so that only arithmetic can differ.
Run: python quant.py
"""
import gguf
import torch
from gguf import GGMLQuantizationType as Type
from transformers import LlamaConfig, LlamaForCausalLM

from common import GREEDY, MARGIN, PROMPT, check, greedy, logits, random_tokens, randomise, save, sentencepiece, write

VOCAB, LOGITS = 288, 32
TYPES = (Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1)


def build():
    return LlamaForCausalLM(LlamaConfig(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, attn_implementation="eager"))


def rounded(model, quant):
    """Returns the model with its matrices quantized and dequantized."""
    twin = build().eval()
    weights = {key: torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(p.numpy(), quant), quant)) if p.dim() == 2 else p
               for key, p in model.state_dict().items()}
    twin.load_state_dict(weights)
    return twin


def find():
    for seed in range(1000):
        model, tokens = randomise(build(), seed), random_tokens(VOCAB, seed)
        twins = [rounded(model, quant) for quant in TYPES]
        outs = [greedy(twin, tokens[:PROMPT], GREEDY) for twin in twins]
        if all(lead > MARGIN and len(set(out)) >= 12 for out, lead in outs):
            return seed, model, tokens[:LOGITS], twins, outs
    raise SystemExit("no suitable seed found")


if __name__ == "__main__":
    torch.set_num_threads(1)
    seed, model, tokens, twins, outs = find()
    for quant, twin, (out, lead) in zip(TYPES, twins, outs):
        name = f"quant_{quant.name.lower()}"
        answers = logits(twin, tokens)
        write(model, "llama", name, sentencepiece, quant)
        save(name, tokens, answers, greedy=out, min_margin=lead, seed=seed)
        check(name, tokens, answers)
