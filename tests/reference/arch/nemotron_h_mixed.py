"""Nemotron-H with layers of all four kinds, feed-forward networks (-) and experts (E) of different widths among them; untied.

A GGUF cannot have both: in a file with experts every layer with a feed-forward width has experts."""
from arch.common import golden, on_hub
from arch.mamba2 import check_decay
from arch.nemotron_h import ADDED, config, f32, hub, squared_relu
from arch.nemotron_h_moe import EXPERTS, MOE_ABLATIONS, adjusted

if __name__ == "__main__":
    pattern = "-EM*"
    golden("nemotron_h_mixed", config(pattern, **EXPERTS | {"intermediate_size": 26}), layout=on_hub, hub=hub(pattern), drop=ADDED + ("moe_latent_size",), adjust=adjusted, weights=f32,
           to_gguf=False, mlx=True, ablations=(*MOE_ABLATIONS, squared_relu))
    check_decay("nemotron_h_mixed")
