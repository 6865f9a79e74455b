"""Mistral Small 3.1: a plain Llama, whose head dimension differs from dim / heads, in the format of multimodal files; untied.

The GGUF is of arch `mistral3`, without YaRN and the factor of queries."""
from transformers import MistralConfig

from arch.common import VOCAB, golden, sentencepiece
from arch.mistral3 import VISUAL, layout_of, weights_of

TEXT = dict(model_type="mistral", vocab_size=VOCAB, hidden_size=40, intermediate_size=44, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=12, max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=1000000.0, sliding_window=None, tie_word_embeddings=False)


def rope(model):
    model.model.language_model.rotary_emb.inv_freq /= 2


if __name__ == "__main__":
    golden("mistral_small3", MistralConfig(**TEXT), sentencepiece, layout=layout_of(TEXT), weights=weights_of(TEXT), excluded=VISUAL, ablations=(rope,))
