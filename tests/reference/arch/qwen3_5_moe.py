"""Qwen 3.5 MoE as on the Hugging Face Hub: the mixers of Qwen 3.5, six experts in every layer, two per token, with normalized weights, and a
shared expert with a sigmoid gate. Nested, experts stacked with gate rows first; vision tower and MTP block; untied.

The GGUF has the MTP block as its last one, and no `feed_forward_length`."""
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig, Qwen3_5MoeVisionConfig

from arch.common import golden
from arch.delta_net import ABLATIONS, check_decay, exact, nested, realistic, stacked, to_checkpoint
from arch.moe import normalization, one_expert_less, shared_expert, shared_gate

exact(modeling_qwen3_5_moe)
ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "mrope_section": [1, 1, 0], "mrope_interleaved": True}
EXPERTS = dict(moe_intermediate_size=10, shared_expert_intermediate_size=14, num_experts=6, num_experts_per_tok=2)
TEXT = dict(
    vocab_size=275, hidden_size=36, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=16, linear_conv_kernel_dim=4,
    linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=6, max_position_embeddings=256, rms_norm_eps=1e-6,
    tie_word_embeddings=False, full_attention_interval=4, eos_token_id=272, rope_parameters=ROPE, **EXPERTS)
VISION = dict(depth=1, hidden_size=8, intermediate_size=12, num_heads=2, patch_size=2, out_hidden_size=36, num_position_embeddings=4)
MOE_ABLATIONS = (normalization, one_expert_less, shared_expert, shared_gate)


if __name__ == "__main__":
    vision = modeling_qwen3_5_moe.Qwen3_5MoeVisionModel(Qwen3_5MoeVisionConfig(**VISION))
    layout, weights = nested(TEXT, VISION, vision, "qwen3_5_moe")
    golden("qwen3_5_moe", Qwen3_5MoeTextConfig(**TEXT), layout=layout, weights=lambda tensors: weights(stacked(tensors)), adjust=realistic, excluded=("visual",),
           to_checkpoint=to_checkpoint, mtp=True, mlx=True, ablations=ABLATIONS + MOE_ABLATIONS)
    check_decay("qwen3_5_moe")
