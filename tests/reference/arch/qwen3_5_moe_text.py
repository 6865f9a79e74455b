"""Qwen 3.5 MoE, text only, as saved by transformers 5: every expert by itself. As many value heads as key heads, so that the order of
value heads in GGUF is that of the checkpoint; tied."""
from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe
from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig

from arch.common import as_saved, golden
from arch.delta_net import ABLATIONS, check_decay, exact, head_groups, realistic, to_checkpoint
from arch.qwen3_5_moe import EXPERTS, MOE_ABLATIONS, ROPE

exact(modeling_qwen3_5_moe)
L, F = "linear_attention", "full_attention"

golden("qwen3_5_moe_text", Qwen3_5MoeTextConfig(
    vocab_size=275, hidden_size=36, num_hidden_layers=4, layer_types=[L, F, L, L], num_attention_heads=3, num_key_value_heads=1, head_dim=16,
    linear_conv_kernel_dim=4, linear_key_head_dim=12, linear_value_head_dim=12, linear_num_key_heads=3, linear_num_value_heads=3,
    max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=True, eos_token_id=272, rope_parameters=ROPE, **EXPERTS,
), layout=as_saved, adjust=realistic, to_checkpoint=to_checkpoint, ablations=tuple(a for a in ABLATIONS if a is not head_groups) + MOE_ABLATIONS)
check_decay("qwen3_5_moe_text")
