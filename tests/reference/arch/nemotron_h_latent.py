"""Nemotron 3 Super: Nemotron-H with experts that work in a smaller space, `moe_latent_size`; router and shared expert see the full one. One matrix
for all experts projects to that space, another one back; untied. Keys of config.json are those of `transformers` 5."""
from arch.common import as_saved, golden
from arch.mamba2 import check_decay, realistic, to_checkpoint
from arch.nemotron_h import NEMOTRON_ABLATIONS, config, f32
from arch.nemotron_h_moe import EXPERTS, MOE_ABLATIONS, adjusted


def latent_experts(model):
    for layer in model.model.layers:
        if hasattr(layer.mixer, "fc2_latent_proj"):
            layer.mixer.fc2_latent_proj.weight.data.zero_()


if __name__ == "__main__":
    golden("nemotron_h_latent", config("ME*E", moe_latent_size=20, **EXPERTS), layout=as_saved, adjust=adjusted, weights=f32,
           to_checkpoint=to_checkpoint, ablations=NEMOTRON_ABLATIONS + MOE_ABLATIONS + (latent_experts,))
    check_decay("nemotron_h_latent")
