"""Falcon H1 with a norm of two groups in Mamba-2, after the gate, and with multipliers as in released models.

The GGUF has matrices in F32, because the products of weights and multipliers are not exact in BF16. It has no key for the order of gate and norm."""
from arch.common import gguf, golden, on_hub
from arch.falcon_h1 import ADDED, FALCON_ABLATIONS, HUB, config, multiplier_ablations, to_checkpoint
from arch.mamba2 import NORM_ABLATIONS, check_decay, mixers, realistic

MULTIPLIERS = {
    "embedding_multiplier": 5.656854249492381, "lm_head_multiplier": 0.390625, "key_multiplier": 0.6390625, "attention_in_multiplier": 1.3, "attention_out_multiplier": 0.9375,
    "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.23570226039551587, "ssm_multipliers": [0.3535533905932738, 0.25, 0.3535533905932738, 0.5, 0.3535533905932738],
    "mlp_multipliers": [0.8838834764831844, 0.5859375]}


def norm_groups(model):
    """Normalizes the whole row instead of its groups."""
    for m in mixers(model):
        m.norm.n_groups = 1


if __name__ == "__main__":
    golden("falcon_h1_norm", config(MULTIPLIERS, mamba_rms_norm=True), layout=on_hub, hub=HUB, drop=ADDED, adjust=realistic, to_checkpoint=to_checkpoint(MULTIPLIERS),
           kind=gguf.LlamaFileType.ALL_F32, ablations=(*FALCON_ABLATIONS, *NORM_ABLATIONS, norm_groups, *multiplier_ablations(MULTIPLIERS), {"mamba_norm_before_gate": True}))
    check_decay("falcon_h1_norm")
