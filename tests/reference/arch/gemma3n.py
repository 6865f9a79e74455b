"""Gemma 3n: four residual streams of which attention and MLP read the first (AltUp), a low-rank branch next to attention (LAuReL), per-layer
embeddings, sparse activations in the first layers, and last layers that share the KV cache of earlier ones. Norms use w; tied.

Published files nest the text model (`model.language_model.*`) and contain unused K and V weights of the sharing layers. In GGUF the projections
of the streams are stacked, and `activation_sparsity_scale` is the number of standard deviations of each layer, -inf for no sparsity.
`hidden.npy` has the first stream. `mlx-lm` saves the same names."""
import json
import shutil
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import Gemma3nTextConfig

from arch.common import VOCAB, golden, load
from common import gemma

S, F = "sliding_attention", "full_attention"
LOCAL, GLOBAL = 50.0, 500.0  # the published 1e4 and 1e6 have too little effect at 96 positions
TEXT = dict(
    vocab_size=VOCAB, vocab_size_per_layer_input=VOCAB, hidden_size=36, intermediate_size=[30, 30, 26, 26, 22], num_hidden_layers=5, num_attention_heads=3, num_key_value_heads=1,
    head_dim=8, hidden_size_per_layer_input=6, num_kv_shared_layers=2, laurel_rank=5, altup_num_inputs=4, altup_active_idx=0, altup_coef_clip=120.0,
    altup_correct_scale=True, activation_sparsity_pattern=[0.7, 0.7, 0.0, 0.0, 0.0], sliding_window=16, final_logit_softcapping=3.0, max_position_embeddings=256,
    rms_norm_eps=1e-6, layer_types=[S, S, F, S, F], hidden_activation="gelu_pytorch_tanh")
ROPE = {S: {"rope_type": "default", "rope_theta": LOCAL}, F: {"rope_type": "default", "rope_theta": GLOBAL}}
PREFIX = "model.language_model."


def layout(config):
    """Returns the layout of config.json of the published files."""
    return {"architectures": ["Gemma3nForConditionalGeneration"], "audio_config": {"model_type": "gemma3n_audio"}, "eos_token_id": [1, 106], "initializer_range": 0.02,
            "model_type": "gemma3n", "text_config": TEXT | {"model_type": "gemma3n_text", "rope_local_base_freq": LOCAL, "rope_theta": GLOBAL, "rope_scaling": None},
            "torch_dtype": "bfloat16", "vision_config": {"model_type": "gemma3n_vision"}}


def weights(tensors):
    noise = torch.Generator().manual_seed(0)
    more = {"model.vision_tower.timm_model.conv_stem.conv.weight": (8, 3, 3, 3), "model.audio_tower.conformer.0.norm.weight": (8,), "model.embed_vision.embedding.weight": (8, 8),
            "model.embed_audio.embedding_projection.weight": (36, 8)}
    for layer in (3, 4):
        path = f"{PREFIX}layers.{layer}.self_attn"
        more |= {f"{path}.k_proj.weight": (8, 36), f"{path}.v_proj.weight": (8, 36), f"{path}.k_norm.weight": (8,)}
    return ({name.replace("model.", PREFIX, 1): t for name, t in tensors.items()}
            | {name: torch.randn(shape, generator=noise).to(torch.bfloat16) for name, shape in more.items()})


def load_text(folder, **changes):
    """Loads the text model of the folder; the multimodal class requires the package timm."""
    with tempfile.TemporaryDirectory() as files:
        shutil.copytree(folder, files, dirs_exist_ok=True)
        tensors = load_file(folder / "model.safetensors")
        save_file({name.replace(PREFIX, "model."): t for name, t in tensors.items() if name.startswith(PREFIX)}, Path(files) / "model.safetensors", metadata={"format": "pt"})
        text = json.loads((folder / "config.json").read_text())["text_config"]
        (Path(files) / "config.json").write_text(json.dumps(text | {"architectures": ["Gemma3nForCausalLM"]}))
        return load(files, **changes)


def realistic(model):
    """Sets the keys, the routers and the coefficients of the streams to ranges in which all of them have an effect."""
    for name, p in model.named_parameters():
        if name.endswith("k_norm.weight"):
            p.data *= 0.3  # because attention has no other scale
        if name.endswith("modality_router.weight"):
            p.data *= 15
        if name.endswith("prediction_coefs.weight"):
            p.data *= 0.3
        if name.endswith("correct_output_scale"):
            p.data += 1


def layers(model):
    return model.model.layers


def predictions(model):
    for layer in layers(model):
        layer.altup.prediction_coefs.weight.data.zero_()


def corrections(model):
    for layer in layers(model):
        layer.altup.correction_coefs.weight.data.zero_()


def transposed_predictions(model):
    for layer in layers(model):
        w = layer.altup.prediction_coefs.weight
        w.data = w.data.unflatten(0, (4, 4)).transpose(0, 1).flatten(0, 1)


def laurel(model):
    for layer in layers(model):
        layer.laurel.post_laurel_norm.weight.data.zero_()


def per_layer_inputs(model):
    model.model.embed_tokens_per_layer.weight.data.zero_()


def per_layer_projection(model):
    model.model.per_layer_projection_norm.weight.data.zero_()


def output_scale(model):
    for layer in layers(model):
        layer.altup.correct_output_scale.data.fill_(1)


def other_streams(model):
    """Copies the first stream to the others at the start."""
    for p in model.model.altup_projections:
        p.weight.data = torch.eye(36)


def unembedding(model):
    for p in model.model.altup_unembed_projections:
        p.weight.data = torch.eye(36)


def v_norms(model):
    for layer in layers(model):
        layer.self_attn.v_norm = torch.nn.Identity()


if __name__ == "__main__":
    golden("gemma3n", Gemma3nTextConfig(**TEXT, rope_parameters=ROPE), gemma, layout=layout, weights=weights, adjust=realistic, load=load_text, excluded=("vision", "audio"),
           ablations=(predictions, corrections, transposed_predictions, laurel, per_layer_inputs, per_layer_projection, output_scale, other_streams, unembedding, v_norms,
                      {"activation_sparsity_pattern": [0.0] * 5}, {"sliding_window": 96}, {"final_logit_softcapping": 30.0}, {"layer_types": [S, F, S, S, F]},
                      {"rope_parameters": {S: ROPE[S], F: ROPE[S]}}, {"rope_parameters": {S: ROPE[F], F: ROPE[F]}}))
