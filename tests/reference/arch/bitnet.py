"""BitNet b1.58 2B-4T: ternary weights, 8-bit activations per token, norms inside attention and MLP, squared ReLU.

The GGUF has the format of Microsoft's file (`bitnet-b1.58`, I2_S, embeddings F16, no `tokenizer.ggml.pre`, RoPE by halves). It
is written here, because llama.cpp lacks I2_S. Blocks of I2_S span rows here, as 96 columns are not a multiple of 128."""
from transformers import BitNetConfig, BitNetForCausalLM

from arch import ternary
from arch.common import VOCAB, randomise
from common import byte_level


def build(seed):
    config = BitNetConfig(
        vocab_size=VOCAB, hidden_size=96, intermediate_size=160, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        max_position_embeddings=256, rms_norm_eps=1e-5, hidden_act="relu2", tie_word_embeddings=True, bos_token_id=285, eos_token_id=287,
        rope_parameters={"rope_type": "default", "rope_theta": 500000.0}, attn_implementation="eager")
    return ternary.ternarise(randomise(BitNetForCausalLM(config), seed), lambda mean: mean.bfloat16().float())


def keys(model):
    w = ternary.keys(model, "bitnet-b1.58", "bitnet")
    byte_level(w, VOCAB)
    w.remove_key("tokenizer.ggml.pre")
    return w


if __name__ == "__main__":
    ternary.golden("bitnet", build, keys, {"linear_class": "autobitlinear", "quantization_mode": "offline"},
                   scale_of=lambda layer: layer.weight_scale.item())
