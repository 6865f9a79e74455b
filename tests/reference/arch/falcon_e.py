"""Falcon-E, Falcon 3 1.58 and Llama 3 8B 1.58: a Llama with ternary weights and 8-bit activations; the scale divides.

quantization_config has only the method, so the linear_class of `transformers` defaults to "bitlinear", which divides. SiLU, no
inner norms, untied lm_head. The GGUF has arch llama, so rows of Q and K are in pairs; I2_S is written here."""
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.integrations.bitnet import BitLinear

from arch import ternary
from arch.common import VOCAB, randomise
from common import byte_level


def build(seed):
    config = LlamaConfig(
        vocab_size=VOCAB, hidden_size=96, intermediate_size=160, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2,
        max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=False, bos_token_id=285, eos_token_id=287,
        rope_parameters={"rope_type": "default", "rope_theta": 1000042.0}, attn_implementation="eager")
    return ternary.ternarise(randomise(LlamaForCausalLM(config), seed), lambda mean: (1 / mean).bfloat16().float(), BitLinear)


def keys(model):
    w = ternary.keys(model, "llama", "falcon_e")
    byte_level(w, VOCAB)
    return w


if __name__ == "__main__":
    ternary.golden("falcon_e", build, keys, {}, scale_of=lambda layer: 1 / layer.weight_scale.item(), permuted=True)
