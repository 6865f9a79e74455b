"""Ministral 3 in the format of multimodal files: the text model is nested in config.json and in the tensor names, next to a vision tower; untied."""
import torch
from transformers import Ministral3Config, Mistral3Config
from transformers.models.mistral3.modeling_mistral3 import Mistral3Model

from arch.common import golden, sentencepiece
from arch.ministral3 import ABLATIONS, ROPE, SIZES

TEXT = SIZES | dict(model_type="ministral3", hidden_size=36, intermediate_size=44, num_attention_heads=3, num_key_value_heads=1, head_dim=16,
                    tie_word_embeddings=False, rope_parameters=ROPE)
VISION = dict(model_type="pixtral", hidden_size=8, intermediate_size=12, num_hidden_layers=1, num_attention_heads=2, head_dim=4, image_size=28, patch_size=2)
VISUAL = ("vision_tower", "multi_modal_projector")


def layout_of(text):
    """Returns the layout of config.json of a multimodal file."""
    return lambda config: {
        "architectures": ["Mistral3ForConditionalGeneration"], "dtype": "bfloat16", "image_token_index": 10, "model_type": "mistral3", "multimodal_projector_bias": False,
        "projector_hidden_act": "gelu", "spatial_merge_size": 2, "text_config": text, "tie_word_embeddings": text["tie_word_embeddings"], "vision_config": VISION,
        "vision_feature_layer": -1}


def weights_of(text):
    """Returns the function that nests the names of the tensors and adds a random vision tower."""
    def weights(tensors):
        noise = torch.Generator().manual_seed(0)
        whole = Mistral3Model(Mistral3Config(text_config=text, vision_config=VISION)).state_dict()
        return ({f"language_model.{name}": t for name, t in tensors.items()}
                | {name: torch.randn(t.shape, generator=noise).to(torch.bfloat16) for name, t in whole.items() if name.startswith(VISUAL)})
    return weights


if __name__ == "__main__":
    golden("mistral3", Ministral3Config(**TEXT), sentencepiece, layout=layout_of(TEXT), weights=weights_of(TEXT), excluded=VISUAL, mlx=True, ablations=ABLATIONS)
