"""Qwen 3.5 as on the Hugging Face Hub: the text model is nested in config.json and in the tensor names, next to a vision tower and a
block that predicts the token after the next (MTP). Without `layer_types`; A_log and the norms of DeltaNet layers are F32.

The GGUF has the MTP block as its last one, counted in `block_count`. `mlx-lm` saves w + 1 and convolution weights with another
order of dimensions, without the vision tower and the MTP block."""
from transformers import Qwen3_5TextConfig
from transformers.models.qwen3_5 import modeling_qwen3_5
from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5VisionConfig

from arch.common import golden
from arch.delta_net import ABLATIONS, check_decay, exact, nested, realistic, to_checkpoint

exact(modeling_qwen3_5)
TEXT = dict(
    vocab_size=275, hidden_size=36, intermediate_size=22, num_hidden_layers=4, num_attention_heads=3, num_key_value_heads=1, head_dim=32,
    linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=3, linear_num_value_heads=6,
    max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=False, full_attention_interval=4, eos_token_id=272,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "mrope_section": [2, 1, 1], "mrope_interleaved": True})
VISION = dict(depth=1, hidden_size=8, intermediate_size=12, num_heads=2, patch_size=2, out_hidden_size=36, num_position_embeddings=4)


if __name__ == "__main__":
    vision = modeling_qwen3_5.Qwen3_5VisionModel(Qwen3_5VisionConfig(**VISION))
    layout, weights = nested(TEXT, VISION, vision, "qwen3_5")
    golden("qwen3_5_nested", Qwen3_5TextConfig(**TEXT), layout=layout, weights=weights, adjust=realistic, excluded=("visual",),
           to_checkpoint=to_checkpoint, mtp=True, mlx=True, ablations=ABLATIONS)
    check_decay("qwen3_5_nested")
