"""Gemma 3, text alone: QK norms, norms before and behind, windows but for every third layer, whose RoPE has a base and a
linear scaling of its own.

The GGUF says nothing of the pattern (6 when it is silent) and the query scale (by the number of layers: 62: dim / heads,
else head_dim); here the keys `attention.sliding_window_pattern` and `attention.scale` do."""
from transformers import Gemma3TextConfig

from arch.common import VOCAB, golden
from arch.gemma import less_one, w_for_one_more, scale_of_embeddings
from common import gemma

PATTERN, SCALAR = 3, 14
LINEAR = {"rope_type": "linear", "factor": 8.0}
LOCAL, GLOBAL = 50.0, 500.0  # 96 positions do not notice the published 1e4 and 1e6


def on_hub(config):
    """The keys of the published text models."""
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
    ), gemma, layout=on_hub, temper=w_for_one_more, before=less_one, keys=keys, matters=(
        scale_of_embeddings, w_for_one_more, {"query_pre_attn_scalar": 16}, {"sliding_window": 96},
        rope(GLOBAL, LINEAR | {"rope_theta": GLOBAL}), rope(LOCAL, {"rope_type": "default", "rope_theta": GLOBAL}),
        rope(LOCAL, LINEAR | {"rope_theta": LOCAL}),
    ))
