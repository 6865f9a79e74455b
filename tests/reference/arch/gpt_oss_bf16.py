"""gpt-oss with experts in BF16, as fine-tuned models: matrices [experts, in, out], with columns of gate and up in turn."""
from arch.common import golden
from arch.gpt_oss import ABLATIONS, config, on_hub, wide

golden("gpt_oss_bf16", config(hidden_size=36, intermediate_size=20, num_attention_heads=6, num_key_value_heads=2, head_dim=12, num_local_experts=6, num_experts_per_tok=3),
       layout=on_hub, hub={"num_local_experts": 6}, adjust=wide, ablations=ABLATIONS)
