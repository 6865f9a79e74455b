"""Gemma 3, text only: QK norms, norms before and after, sliding windows except in every third layer, whose RoPE has its own
base and linear scaling.

The GGUF format lacks the pattern (default 6) and the query scale (62 layers: dim / heads, else head_dim); here they are in the
keys `attention.sliding_window_pattern` and `attention.scale`."""
from transformers import Gemma3TextConfig

from arch.common import VOCAB, golden
from arch.gemma import subtract_one, one_plus_w, unscaled_embeddings
from common import gemma

PATTERN, SCALAR = 3, 14
LINEAR = {"rope_type": "linear", "factor": 8.0}
LOCAL, GLOBAL = 50.0, 500.0  # the published 1e4 and 1e6 have too little effect at 96 positions


def on_hub(config):
    """Returns config.json with the keys of the published text models."""
    for key in ("layer_types", "_sliding_window_pattern", "rope_parameters", "use_bidirectional_attention"):
        config.pop(key, None)
    config["torch_dtype"] = config.pop("dtype")
    return config | {"cache_implementation": "hybrid", "rope_theta": GLOBAL, "rope_local_base_freq": LOCAL, "rope_scaling": LINEAR,
                     "sliding_window_pattern": PATTERN}


def keys(writer):
    writer.add_sliding_window_pattern(PATTERN)
    writer.add_attention_scale(SCALAR**-0.5)


def rope(local, full):
    return {"rope_parameters": {"sliding_attention": {"rope_type": "default", "rope_theta": local}, "full_attention": full}}


if __name__ == "__main__":
    golden("gemma3", Gemma3TextConfig(
        vocab_size=VOCAB, hidden_size=42, intermediate_size=58, num_hidden_layers=4, num_attention_heads=3, num_key_value_heads=1,
        head_dim=16, query_pre_attn_scalar=SCALAR, sliding_window=16, sliding_window_pattern=PATTERN, max_position_embeddings=256,
        rms_norm_eps=1e-6, rope_theta=GLOBAL, rope_local_base_freq=LOCAL, rope_scaling=LINEAR,
    ), gemma, layout=on_hub, adjust=one_plus_w, to_checkpoint=subtract_one, keys=keys, ablations=(
        unscaled_embeddings, one_plus_w, {"query_pre_attn_scalar": 16}, {"sliding_window": 96},
        rope(GLOBAL, LINEAR | {"rope_theta": GLOBAL}), rope(LOCAL, {"rope_type": "default", "rope_theta": GLOBAL}),
        rope(LOCAL, LINEAR | {"rope_theta": LOCAL}),
    ))
