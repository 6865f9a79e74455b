"""nomic-embed-text: BERT with RoPE, SwiGLU, fused QKV, biases only in norms. No Normalize module.

hf/config.json has the published format (n_embd, n_head, ...), which llama.cpp's converter also reads; config_transformers5.json
has the format of `transformers`. The weights have the same names.
"""
import shutil
import tempfile
from pathlib import Path

from transformers import NomicBertConfig, NomicBertModel

from arch.embedding import ROOT, fresh, golden, randomise, save, wordpiece, write_json

VOCAB, LONGEST = 200, 80
# The converter requires these two values and writes 2048, the context length of the published models.
CONFIG = {
    "activation_function": "swiglu", "architectures": ["NomicBertModel"], "attn_pdrop": 0.0, "bos_token_id": None, "causal": False,
    "dense_seq_output": True, "embd_pdrop": 0.0, "eos_token_id": None, "fused_bias_fc": True, "initializer_range": 0.02, "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 2048, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "model_type": "nomic_bert", "n_embd": 52, "n_head": 2,
    "n_inner": 92, "n_layer": 2, "n_positions": 8192, "pad_vocab_size_multiple": 64, "parallel_block": False, "parallel_block_tied_norm": False,
    "prenorm": False, "qkv_proj_bias": False, "resid_pdrop": 0.0, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None, "rotary_scaling_factor": None, "torch_dtype": "bfloat16", "type_vocab_size": 2, "use_rms_norm": False, "vocab_size": VOCAB,
}

hf = fresh("nomic")
tokenizer, config = wordpiece(VOCAB)
model = randomise(NomicBertModel._from_config(NomicBertConfig(
    vocab_size=VOCAB, hidden_size=CONFIG["n_embd"], intermediate_size=CONFIG["n_inner"], num_hidden_layers=CONFIG["n_layer"],
    num_attention_heads=CONFIG["n_head"], max_position_embeddings=2048, rope_parameters={"rope_type": "default", "rope_theta": 1000.0}),
    attn_implementation="eager"), 4)
save(model, hf)
tokenizer.save(str(hf / "tokenizer.json"))
write_json(hf / "tokenizer_config.json", config | {"model_max_length": 8192})
with tempfile.TemporaryDirectory() as readable:
    shutil.copytree(hf, readable, dirs_exist_ok=True)
    (hf / "config.json").rename(ROOT / "nomic/config_transformers5.json")
    write_json(hf / "config.json", CONFIG)
    golden("nomic", model, tokenizer, pooling="mean", normalize=False, longest=LONGEST, single=tokenizer.token_to_id("[CLS]"),
           prompts={"search_query": "they told: ", "search_document": "of the sea: "}, folder=Path(readable), hparams=CONFIG,
           ablations=({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}, {"hidden_act": "gelu"}))
