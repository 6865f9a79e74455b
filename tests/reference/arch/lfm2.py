"""LFM2: gated short convolutions of three taps, and attention with norms of queries and keys in some layers; the final norm is
`embedding_norm`; tied.

The keys of config.json are those of the first released models: `full_attn_idxs` instead of `layer_types`, and `block_ff_dim`, of which two
thirds, rounded up to a multiple of `block_multiple_of`, are the width of the feed-forward network.

The GGUF has the final norm as `token_embd_norm`."""
from transformers import Lfm2Config

from arch.common import golden, on_hub
from arch.short_conv import ABLATIONS

ATTENTION = [1, 3]
HUB = {"block_dim": 36, "block_ff_dim": 66, "block_mlp_init_scale": 1.0, "block_norm_eps": 1e-5, "block_out_init_scale": 1.0, "block_use_swiglu": True,
       "block_use_xavier_init": True, "conv_dim": 36, "conv_dim_out": 36, "conv_use_xavier_init": True, "full_attn_idxs": ATTENTION, "num_heads": 6,
       "use_pos_enc": True}

golden("lfm2", Lfm2Config(
    vocab_size=275, hidden_size=36, intermediate_size=66, num_hidden_layers=5, num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=256,
    norm_eps=1e-5, bos_token_id=272, eos_token_id=274, pad_token_id=None, tie_word_embeddings=True, conv_bias=False, conv_L_cache=3, block_multiple_of=8,
    block_ffn_dim_multiplier=1.0, block_auto_adjust_ff_dim=True, full_attn_idxs=ATTENTION, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
), layout=on_hub, hub=HUB, drop=("layer_types", "intermediate_size", "tie_word_embeddings", "rope_scaling"), mlx=True,
    ablations=ABLATIONS)
