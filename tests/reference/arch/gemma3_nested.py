"""Gemma 3 in the format of multimodal files: the text model is nested in config.json, which omits defaults (pattern 6, bases
1e6 and 1e4, query scale 256, eps, context), and in the tensor names.

Since 4.52 transformers uses the names `model.language_model.*`; published files have `language_model.model.*`. The GGUF lacks
the pattern and the RoPE base of sliding-window layers; `attention.scale` is a custom key, as in `gemma3`."""
import torch
from transformers import Gemma3TextConfig

from arch.common import VOCAB, golden
from arch.gemma import subtract_one, one_plus_w
from common import gemma

TEXT = dict(vocab_size=VOCAB, hidden_size=36, intermediate_size=40, num_hidden_layers=6, num_attention_heads=3, num_key_value_heads=1,
            head_dim=12, sliding_window=16, rope_scaling={"rope_type": "linear", "factor": 8.0})
VISION = dict(model_type="siglip_vision_model", hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
              image_size=28, patch_size=14, vision_use_head=False)


def layout(config):
    return {"architectures": ["Gemma3ForConditionalGeneration"], "boi_token_index": 255999, "eoi_token_index": 256000, "eos_token_id": [1, 106],
            "image_token_index": 262144, "initializer_range": 0.02, "mm_tokens_per_image": 4, "model_type": "gemma3",
            "text_config": TEXT | {"model_type": "gemma3_text"}, "torch_dtype": "bfloat16", "vision_config": VISION}


def weights(tensors):
    noise = torch.Generator().manual_seed(0)
    vision = {"vision_tower.vision_model.post_layernorm.weight": [8], "multi_modal_projector.mm_soft_emb_norm.weight": [8],
              "multi_modal_projector.mm_input_projection_weight": [8, 36]}
    return ({f"language_model.{name}": t for name, t in tensors.items()}
            | {name: torch.randn(shape, generator=noise).to(torch.bfloat16) for name, shape in vision.items()})


golden("gemma3_nested", Gemma3TextConfig(**TEXT), gemma, layout=layout, weights=weights, adjust=one_plus_w, to_checkpoint=subtract_one, excluded=("vision_tower", "projector"),
       keys=lambda writer: writer.add_attention_scale(256**-0.5), ablations=(one_plus_w,))
