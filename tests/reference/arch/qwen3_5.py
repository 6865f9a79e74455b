"""Qwen 3.5, text only: Gated DeltaNet layers, and one of full attention with an output gate and RoPE on a quarter of the head
dimension. Norms use 1 + w, except the norm of the DeltaNet layers. The kinds of layers are in `layer_types`, not in the default order.

Value heads are grouped by key head; in GGUF files they are in another order, in which value head j reads key head j modulo their
count. The GGUF has w + 1 and -exp(A_log), and `full_attention_interval` 4, which the list of kinds overrides."""
from transformers import Qwen3_5TextConfig
from transformers.models.qwen3_5 import modeling_qwen3_5

from arch.common import as_saved, golden
from arch.delta_net import ABLATIONS, check_decay, exact, realistic, to_checkpoint

exact(modeling_qwen3_5)
L, F = "linear_attention", "full_attention"
CONFIG = dict(
    vocab_size=275, hidden_size=44, intermediate_size=36, num_hidden_layers=4, layer_types=[L, L, F, L],
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_value_head_dim=8,
    linear_num_key_heads=2, linear_num_value_heads=6, max_position_embeddings=256, rms_norm_eps=1e-6, tie_word_embeddings=True, bos_token_id=272, eos_token_id=274,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25, "mrope_section": [1, 1, 0], "mrope_interleaved": True})


if __name__ == "__main__":
    golden("qwen3_5", Qwen3_5TextConfig(**CONFIG), layout=as_saved, adjust=realistic, to_checkpoint=to_checkpoint, ablations=ABLATIONS)
    check_decay("qwen3_5")
