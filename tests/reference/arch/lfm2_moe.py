"""LFM2 MoE: short convolutions and attention of LFM2, and experts in all layers but the first; two of six experts per token, chosen by the
sigmoids of the scores plus a bias, with normalized sigmoids as weights; tied.

The bias is stored as `feed_forward.expert_bias` in F32, outside of the router. GGUF has no key of the normalization."""
from transformers import Lfm2MoeConfig

from arch.common import golden, on_hub
from arch.moe import SIGMOID_ABLATIONS, f32_biases, random_biases
from arch.short_conv import ABLATIONS, CONV, FULL

golden("lfm2_moe", Lfm2MoeConfig(
    vocab_size=275, hidden_size=36, intermediate_size=44, moe_intermediate_size=14, num_hidden_layers=4, num_attention_heads=6, num_key_value_heads=2,
    max_position_embeddings=256, norm_eps=1e-5, bos_token_id=272, eos_token_id=274, pad_token_id=None, tie_word_embeddings=True, conv_bias=False, conv_L_cache=3,
    num_dense_layers=1, num_experts=6, num_experts_per_tok=2, use_expert_bias=True, norm_topk_prob=True, routed_scaling_factor=1.0,
    layer_types=[CONV, FULL, CONV, FULL], rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
), layout=on_hub, drop=("rope_scaling", "tie_word_embeddings"), adjust=random_biases, weights=f32_biases, mlx=True, ablations=ABLATIONS + SIGMOID_ABLATIONS)
