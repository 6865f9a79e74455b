"""XLM-RoBERTa like multilingual E5: positions start at 2, one token type, SentencePiece unigram.

The GGUF's tokens are from sentencepiece.bpe.model, as in most published files; the converter drops the two unused rows of the
position embedding, and writes tokenizer model `t5`.
"""
import base64
import io
import tempfile

import numpy as np
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as proto
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import XLMRobertaConfig, XLMRobertaModel

from arch.embedding import CORPUS, TEXTS, fresh, golden, randomise, save, write_json

LONGEST = 80
# Normalization rules of SentencePiece; the full table has 240 kB.
RULES = {"é": "e", "ﬁ": "fi", "\u00a0": " ", "\t": " ", "\n": " ", "Ａ": "A", "…": "..."}


def unigram():
    """Returns the SentencePiece file and the tokenizer.json, which has four special tokens in another order and a mask at the end."""
    file, words = io.BytesIO(), np.random.default_rng(0).permuted(np.tile(CORPUS.split(), (60, 1)), axis=1)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        for old, new in RULES.items():
            rules.write("\t".join(" ".join(f"{ord(c):X}" for c in text) for text in (old, new)) + "\n")
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([" ".join(line) for line in words] + ["a b c d e f g h i j k l m n o p q r s t u v w x y z ? ! - :"]), model_writer=file, vocab_size=120, hard_vocab_limit=False,
            model_type="unigram", normalization_rule_tsv=rules.name, character_coverage=1.0, minloglevel=2)
    model = proto.ModelProto.FromString(file.getvalue())
    model.normalizer_spec.ClearField("normalization_rule_tsv")
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = [(s, 0.0) for s in special] + [(p.piece, p.score) for p in model.pieces[3:]] + [("<mask>", 0.0)]
    t = Tokenizer(models.Unigram(pieces, unk_id=3))
    t.normalizer = normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    t.add_special_tokens([*special, AddedToken("<mask>", lstrip=True)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    for text in TEXTS:
        assert [i + 1 if i else 3 for i in processor.encode(text)] == t.encode(text, add_special_tokens=False).ids, text
    return model.SerializeToString(), t


if __name__ == "__main__":
    hf = fresh("roberta")
    spm, tokenizer = unigram()
    model = randomise(XLMRobertaModel(XLMRobertaConfig(
        vocab_size=tokenizer.get_vocab_size(), hidden_size=36, intermediate_size=76, num_hidden_layers=3, num_attention_heads=3, max_position_embeddings=98,
        type_vocab_size=1, pad_token_id=1, bos_token_id=0, eos_token_id=2, layer_norm_eps=1e-5, hidden_act="gelu", attn_implementation="eager")), 7)
    save(model, hf)
    (hf / "sentencepiece.bpe.model").write_bytes(spm)
    tokenizer.save(str(hf / "tokenizer.json"))
    write_json(hf / "tokenizer_config.json", {
        "bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": True,
        "normalized": True, "rstrip": False, "single_word": False}, "model_max_length": 512, "pad_token": "<pad>", "sep_token": "</s>",
        "tokenizer_class": "XLMRobertaTokenizer", "unk_token": "<unk>"})
    golden("roberta", model, tokenizer, pooling="mean", longest=LONGEST, single=0, ablations=({"hidden_act": "gelu_pytorch_tanh"}, {"pad_token_id": 0}))
