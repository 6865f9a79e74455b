#!/usr/bin/env python3
"""Writes how the pre-tokenizers of model families split random texts:
tests/golden/tokenizers/pre_tokenizers.json.

    python tests/reference/pre_tokenizers.py

For each `tokenizer.ggml.pre` value: the lengths of the words of each text in characters, after
normalization. Generated with tokenizers 0.23.3 and transformers 5.23, whose classes and GGUF mapping
have most of the regexes; the others are those of the `tokenizer.json` files of the models.
"""

import json
from pathlib import Path

from tokenizers import Regex, normalizers, pre_tokenizers
from transformers import CohereTokenizer, GPT2Tokenizer, GPTNeoXTokenizer, Qwen2Tokenizer
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS
from transformers.models.qwen3_5.tokenization_qwen3_5 import Qwen3_5Tokenizer

from vocabularies import texts

OUT = Path(__file__).resolve().parents[1] / "golden/tokenizers/pre_tokenizers.json"
TEXTS = 36
SEED = "pre"
# Letters with marks, in both normalization forms; cases; digits; ends of lines.
FIXED = [
    "cafe\u0301 caf\u00e9 \u0928\u093e\u092e x\u0301\u0302y e\u0301",
    "HTTPServer iPhone McDONALD'S don't DON'T it's WE'LL l'\u00e9t\u00e9",
    "1234567 12.5 \u0661\u0662\u0663 \u00bd \u2167 a1b22c333",
    "a\r\n\r\n  b\n\n\tc // d/e\n/f ...\n!?\n \n",
    "\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\u3002\u4e2d\u6587123 \ud55c\uad6d\uc5b4 \u0e20\u0e32\u0e29\u0e32",
]


def splits(*regexes):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r), "isolated") for r in regexes])


def of(tokenizer):
    backend = tokenizer().backend_tokenizer
    return backend.normalizer, backend.pre_tokenizer


def digits_and_gpt2():
    digits = pre_tokenizers.Digits(individual_digits=True)
    return pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])


DEEPSEEK_3 = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)

# Cased letters, as the tokenizer.json of DeepSeek LLM and V2 lists them.
DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚ"
    "Ḁ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻ"
    "Ȿ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)


def deepseek(*regexes):
    """Returns the pre-tokenizer of an older DeepSeek model."""
    steps = [pre_tokenizers.Split(Regex(r), "isolated") for r in ("[\r\n]", *regexes)]
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.Digits(individual_digits=True)])


DEEPSEEK_LLM = (
    rf"\s?[{DEEPSEEK_LETTERS}]+",
    r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
    r"\s+$",
    "[一-龥ࠀ-一가-퟿]+",
)
DEEPSEEK_CODER = (r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+")

# Each `tokenizer.ggml.pre` value: normalizer and pre-tokenizer.
FAMILIES = {
    "gpt-2": of(GPT2Tokenizer),
    "olmo": of(GPTNeoXTokenizer),
    "modern-bert": of(GPTNeoXTokenizer),
    "qwen2": of(Qwen2Tokenizer),
    "qwen35": of(Qwen3_5Tokenizer),
    "command-r": of(CohereTokenizer),
    "refact": (None, digits_and_gpt2()),
    "smollm": (None, digits_and_gpt2()),
    "deepseek-v3": (None, splits(*DEEPSEEK_3)),
    "deepseek-llm": (None, deepseek(*DEEPSEEK_LLM)),
    "deepseek-coder": (None, deepseek(*DEEPSEEK_CODER)),
    **{
        name: (None, splits(GGUF_PRE_TOKENIZER_SPLITS[name]))
        for name in (
            "llama-bpe", "lfm2", "falcon-h1", "dbrx", "smaug-bpe", "gpt-4o", "tekken", "deepseek-r1-qwen"
        )
    },
    # Llama 3's and Tekken's.
    "glm4": (None, splits(GGUF_PRE_TOKENIZER_SPLITS["llama-bpe"])),
    "chatglm-bpe": (None, splits(GGUF_PRE_TOKENIZER_SPLITS["llama-bpe"])),
    "pixtral": (None, splits(GGUF_PRE_TOKENIZER_SPLITS["tekken"])),
}


def lengths(normalizer, pre_tokenizer, text):
    text = normalizer.normalize_str(text) if normalizer else text
    return [end - start for _, (start, end) in pre_tokenizer.pre_tokenize_str(text)]


def main():
    all_texts = FIXED + list(texts(TEXTS, SEED))
    rows, names = {}, {}
    for name, (normalizer, pre_tokenizer) in FAMILIES.items():
        words = [lengths(normalizer, pre_tokenizer, text) for text in all_texts]
        same = next((other for other, found in rows.items() if found == words), name)
        rows.setdefault(same, words)
        names[name] = same
    dump = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    words = ",\n".join(f"{dump(name)}:{dump(found)}" for name, found in rows.items())
    OUT.write_text(f'{{"texts":{dump(all_texts)},\n"names":{dump(names)},\n"words":{{\n{words}\n}}}}\n', newline="")


if __name__ == "__main__":
    main()
