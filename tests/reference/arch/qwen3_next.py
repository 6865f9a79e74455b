"""Qwen3-Next: like Qwen 3.5 MoE, but the projections of a DeltaNet layer are fused per key head: q, k, v, z in `in_proj_qkvz`, and b, a in
`in_proj_ba`. The keys of config.json are older: no `layer_types`, `rope_theta` outside; with an MTP block; untied.

The GGUF has q, k, v in `attn_qkv`, z in `attn_gate`, b and a fused in `ssm_ba`, value heads in the order of the checkpoint, and no MTP block."""
from transformers import Qwen3NextConfig
from transformers.models.qwen3_next import modeling_qwen3_next

from arch.common import golden, on_hub
from arch.delta_net import ABLATIONS, check_decay, exact, mtp_block, realistic, to_checkpoint
from arch.qwen3_5_moe import EXPERTS, MOE_ABLATIONS

exact(modeling_qwen3_next)
SIZES = dict(hidden_size=36, num_hidden_layers=4)

golden("qwen3_next", Qwen3NextConfig(
    vocab_size=275, intermediate_size=44, num_attention_heads=4, num_key_value_heads=2, head_dim=16, linear_conv_kernel_dim=4, linear_key_head_dim=8,
    linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=6, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
    max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=False, bos_token_id=272, eos_token_id=274,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25}, **SIZES, **EXPERTS,
), layout=on_hub, hub={"full_attention_interval": 4, "num_experts": EXPERTS["num_experts"]}, drop=("layer_types", "num_local_experts"), adjust=realistic,
    weights=lambda tensors: tensors | mtp_block(tensors, SIZES), excluded=("mtp.",), to_checkpoint=to_checkpoint, mlx=True, ablations=ABLATIONS + MOE_ABLATIONS)
check_decay("qwen3_next")
