"""DeepSeek V3: latent attention of DeepSeek V2; three of nine experts from two of three groups, chosen by sigmoids plus a bias, the score of a group
being the sum of its two best experts, with normalized sigmoids times a factor as weights; a block that predicts a further token; untied.

The bias is stored in F32. The GGUF lacks the additional block."""
from mlx_lm.models import deepseek_v3 as mlx_code
from transformers import DeepseekV3Config, DeepseekV3PreTrainedModel

from arch.common import golden
from arch.mla import ABLATIONS, QUERY_RANK, SIZES, YARN_ABLATIONS, mtp_block, on_hub, query_norm, yarn
from arch.moe import SIGMOID_ABLATIONS, f32_biases, group_maxima, groups, random_biases, scaling_factor, shared_expert

HUB = {"ep_size": 1, "moe_layer_freq": 1, "num_nextn_predict_layers": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc"}

FURTHER = f"model.layers.{SIZES['num_hidden_layers']}."


def skip_further_block():
    """Lets `transformers` and `mlx-lm` skip the additional block, which they expect to be layer 61."""
    DeepseekV3PreTrainedModel._keys_to_ignore_on_load_unexpected = [FURTHER]
    sanitize = mlx_code.Model.sanitize
    mlx_code.Model.sanitize = lambda self, weights: sanitize(self, {name: t for name, t in weights.items() if not name.startswith(FURTHER)})


if __name__ == "__main__":
    skip_further_block()
    golden("deepseek_v3", DeepseekV3Config(
        **SIZES, q_lora_rank=QUERY_RANK, n_routed_experts=9, n_shared_experts=1, routed_scaling_factor=2.5, n_group=3, topk_group=2, norm_topk_prob=True, first_k_dense_replace=1,
        rms_norm_eps=1e-6, max_position_embeddings=2560, rope_interleave=True, rope_parameters=yarn(1.0),
    ), layout=on_hub, hub=HUB, drop=("rope_interleave", "num_mtp_layers"), adjust=random_biases, weights=lambda tensors: f32_biases(tensors | mtp_block(tensors, SIZES)),
        excluded=(FURTHER,), mlx=True,
        ablations=ABLATIONS + YARN_ABLATIONS + SIGMOID_ABLATIONS + (query_norm, shared_expert, scaling_factor, groups, group_maxima, {"rope_interleave": False}))
