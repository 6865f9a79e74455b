"""Mixtral: Llama with eight experts, two per token, with normalized weights. The GGUF is of arch `llama`; untied."""
from transformers import MixtralConfig

from arch.common import VOCAB, golden, sentencepiece
from arch.moe import normalization, one_expert_less

golden("mixtral", MixtralConfig(
    vocab_size=VOCAB, hidden_size=36, intermediate_size=20, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=6,
    num_local_experts=8, num_experts_per_tok=2, max_position_embeddings=256, rms_norm_eps=1e-5, tie_word_embeddings=False,
    bos_token_id=1, eos_token_id=2, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
), sentencepiece, hub={"num_local_experts": 8}, drop=("head_dim",), mlx=True, ablations=(normalization, one_expert_less))
