#!/usr/bin/env python3
"""Writes trained vocabularies, and the token ids of `tokenizers` and `sentencepiece` for random texts
in many scripts.

    python tests/reference/vocabularies.py tests/golden/tokenizers      # golden files of the tests
    python tests/reference/vocabularies.py OUT 10000 [tokenizer.json...]  # more texts, also for these files

Generated with tokenizers 0.23.3 and sentencepiece 0.2.3.
"""

import json
import random
import sys
import tempfile
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as spm_pb2
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SEED = 3
TEXTS = 120
# Number of texts that are also encoded with special tokens.
SPECIALS = 5
# First and last character of ranges of assigned letters.
SCRIPTS = [
    "az", "AZ", "az", "az", "ßö", "øÿ", "ĀŽ", "αω", "ΑΡ", "ая", "АЯ", "ѐџ", "ԱՖ", "աֆ", "את", "بغ", "في",
    "अह", "কন", "กฮ", "ກຂ", "ⴀⴥ", "აჰ", "ᄀᄒ", "가힣", "ぁん", "ァヺ", "一龥", "一龥", "ሀቈ", "កហ", "ḁỹ",
    "ａｚ", "ｱﾝ", "①⑳", "ⅠⅫ", "ﬀﬆ", "𝐀𝐙", "𐐀𐑏", "㐀㐯", "\uf900\uf9ff",
]
MARKS = "\u0301\u0308\u0327\u030a\u093e\u094d\u0e31\u0e48\u064e\u0651\u05b8\u20e3\ufe0f\u200d\u3099"
SPACES = [" "] * 30 + ["  ", "   ", "\n", "\n\n", "\t", "\r\n", " \n ", "\u00a0", "\u3000", "\u2009", "\u200b", "    "]
DIGITS = "0123456789" * 4 + "٣४፫½²৪"
SIGNS = ".,;:!?'\"()[]{}<>-_=+*/\\|@#$%^&~`" * 2 + "«»„“”‘’…–—¿¡、。！？「」·•€£¥§©®™±×÷→≤∑√∞°"
EMOJI = ["😀", "👍🏽", "👩‍👩‍👧‍👦", "🇩🇪", "❤️", "🦙", "✅", "🫠", "1️⃣"]
ODD = ["\u0000", "\u0007", "\u007f", "\ufeff", "\ufffd", "\u2028", "\u00ad", "\u202e", "\ue000", "\U000e0041"]
WORDS = """the of and to in is that it was for I'm you're we'll they've don't isn't he'd cannot U.S.A.
    naïve café Straße ŒUVRE İstanbul Ὀδυσσεύς Ёлка хорошо ирония العربية हिन्दी ภาษาไทย 日本語 中文 한국어
    http://example.com/a?b=1 user@example.org #include <stdio.h> def f(x): return x+1 0x1F 3.14159 1,000,000
    snake_case CamelCase HTTPServer e.g. <|im_end|x> <s >""".split()


def word(r, scripts):
    kind = r.random()
    if kind < 0.35:
        return r.choice(WORDS)
    if kind < 0.75:
        first, last = map(ord, r.choice(scripts))
        letters = [chr(r.randint(first, last)) for _ in range(r.randint(1, 9))]
        if r.random() < 0.2:
            letters.insert(r.randint(0, len(letters)), r.choice(MARKS))
        return "".join(letters)
    if kind < 0.85:
        return "".join(r.choice(DIGITS) for _ in range(r.randint(1, 7)))
    if kind < 0.95:
        return "".join(r.choice(SIGNS) for _ in range(r.randint(1, 4)))
    return r.choice(EMOJI) if r.random() < 0.7 else r.choice(ODD)


def texts(count, seed, scripts=SCRIPTS):
    r = random.Random(seed)
    for _ in range(count):
        out = []
        for _ in range(r.randint(1, 14)):
            out.append(word(r, scripts))
            if r.random() < 0.7:
                out.append(r.choice(SPACES))
        if r.random() < 0.1:
            out.insert(0, r.choice(SPACES))
        yield "".join(out)


def wordpiece(corpus):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=900, special_tokens=special, limit_alphabet=500))
    ends = [("[CLS]", t.token_to_id("[CLS]")), ("[SEP]", t.token_to_id("[SEP]"))]
    t.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    t.decoder = decoders.WordPiece()
    return t


def byte_level(corpus):
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.normalizer = normalizers.NFC()
    digits = Regex(r"\p{N}{1,3}")
    words = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    split = [pre_tokenizers.Split(p, "isolated") for p in (digits, words)]
    t.pre_tokenizer = pre_tokenizers.Sequence(split + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<|end|>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    t.train_from_iterator(corpus, trainer)
    t.decoder = decoders.ByteLevel()
    return t


def sentencepiece_model(corpus, folder, **options):
    prefix = str(Path(folder) / "model")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_prefix=prefix, character_coverage=0.995, num_threads=1,
        minloglevel=2, hard_vocab_limit=False, **options
    )
    proto = spm_pb2.ModelProto()
    proto.ParseFromString(Path(prefix + ".model").read_bytes())
    return proto


def normalizer_of(proto):
    steps = []
    if proto.normalizer_spec.precompiled_charsmap:
        steps.append(normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap))
    if proto.normalizer_spec.remove_extra_whitespaces:
        steps += [normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")]
    return normalizers.Sequence(steps)


def unigram(proto):
    pieces = [(p.piece, round(p.score, 6)) for p in proto.pieces]
    t = Tokenizer(models.Unigram(pieces, proto.trainer_spec.unk_id, proto.trainer_spec.byte_fallback))
    t.normalizer = normalizer_of(proto)
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    eos = proto.trainer_spec.eos_piece
    t.post_processor = processors.TemplateProcessing(f"$A {eos}", special_tokens=[(eos, t.token_to_id(eos))])
    t.decoder = decoders.Metaspace()
    t.add_special_tokens(["<unk>", "<s>", "</s>"])
    return t


def xlm_roberta(tokenizer):
    """Returns a Unigram tokenizer with the words and the special tokens of XLM-RoBERTa, as in
    `XLMRobertaTokenizer` of transformers 5.23."""
    t = Tokenizer.from_str(tokenizer.to_str())
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    ends = [(token, t.token_to_id(token)) for token in ("<s>", "</s>")]
    t.post_processor = processors.TemplateProcessing("<s> $A </s>", "<s> $A </s> </s> $B </s>", ends)
    return t


def spm_bpe(proto):
    ids = {p.piece: i for i, p in enumerate(proto.pieces)}
    merges = []
    for piece, i in ids.items():
        for at in range(1, len(piece)):
            left, right = piece[:at], piece[at:]
            if left in ids and right in ids and proto.pieces[i].type == 1:
                merges.append((-proto.pieces[i].score, ids[left], ids[right], left, right))
    merges = [(left, right) for _, _, _, left, right in sorted(merges)]
    t = Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    t.decoder = decoders.Sequence(parts)
    bos = [("<s>", ids["<s>"])]
    t.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=bos)
    t.add_special_tokens(["<unk>", "<s>", "</s>"])
    return t


# A few rules of NFKC; the full map is 400 KB.
RULES = {"ﬁ": "fi", "ﬀ": "ff", "①": "1", "½": "1/2", "™": "TM", "　": " ", "\u00a0": " ", "ａ": "a", "ｂ": "b", "ｃ": "c",
         "e\u0301": "é", "a\u0308": "ä", "ｶﾞ": "ガ", "ｶ": "カ", "…": "...", "\t": " ", "\n": " ", "\u200b": ""}


def rules_file(folder):
    path = Path(folder) / "rules.tsv"
    line = lambda text: " ".join(f"{ord(c):X}" for c in text)
    path.write_text("".join(f"{line(a)}\t{line(b)}\n" for a, b in RULES.items()))
    return str(path)


def keys(proto, kind):
    """Returns the vocabulary in the form of GGUF keys."""
    return {
        "model": kind,
        "tokens": [p.piece for p in proto.pieces],
        "scores": [round(p.score, 6) for p in proto.pieces],
        "types": [p.type for p in proto.pieces],
        "charsmap": list(proto.normalizer_spec.precompiled_charsmap),
        "add_space_prefix": proto.normalizer_spec.add_dummy_prefix,
        "remove_extra_whitespaces": proto.normalizer_spec.remove_extra_whitespaces,
    }


def write(folder, name, tokenizer, count):
    vectors = []
    for text in texts(count, f"{SEED} {name}"):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        vectors.append({"text": text, "ids": ids})
        if len(vectors) <= SPECIALS:
            vectors[-1]["ids_special"] = tokenizer.encode(text).ids
        decoded = tokenizer.decode(ids)
        # WordPiece changes spaces around punctuation when decoding.
        if decoded != text and not isinstance(tokenizer.model, models.WordPiece):
            vectors[-1]["decoded"] = decoded
    rows = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in vectors)
    (folder / f"{name}.vectors.json").write_text("[\n" + ",\n".join(rows) + "\n]\n", newline="")


def trained(folder, count):
    # Few scripts, so that the vocabularies are small and other scripts are unknown.
    corpus = list(texts(3000, f"{SEED} corpus", SCRIPTS[:12] + ["ぁん"]))
    # SentencePiece input is line-based.
    lines = [" ".join(text.replace("\0", "").split("\n")) for text in corpus]
    with tempfile.TemporaryDirectory() as temporary:
        small = dict(vocab_size=700, normalization_rule_tsv=rules_file(temporary))
        protos = {
            "unigram": sentencepiece_model(lines, temporary, model_type="unigram", normalization_rule_name="identity",
                                           vocab_size=700, remove_extra_whitespaces=False),
            "unigram_rules": sentencepiece_model(lines, temporary, model_type="unigram", **small),
            "spm_bpe": sentencepiece_model(lines, temporary, model_type="bpe", normalization_rule_name="identity",
                                           vocab_size=900, byte_fallback=True, remove_extra_whitespaces=False),
        }
        if count > TEXTS:
            protos["unigram_nfkc"] = sentencepiece_model(lines, temporary, model_type="unigram", vocab_size=2000)
            protos["unigram_bytes"] = sentencepiece_model(lines, temporary, model_type="unigram", vocab_size=1200,
                                                          byte_fallback=True)
    tokenizers = {"wordpiece": wordpiece(corpus), "byte_level": byte_level(corpus)}
    for name, proto in protos.items():
        is_bpe = proto.trainer_spec.model_type == 2
        tokenizers[name] = spm_bpe(proto) if is_bpe else unigram(proto)
        rows = keys(proto, "llama" if is_bpe else "t5")
        processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
        # SentencePiece truncates a text at NUL.
        rows["vectors"] = [
            {"text": text, "ids": processor.encode(text)}
            for text in texts(count, f"{SEED} {name}") if "\0" not in text
        ]
        text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
        (folder / f"{name}.keys.json").write_text(text + "\n", newline="")
    tokenizers["xlm_roberta"] = xlm_roberta(tokenizers["unigram_rules"])
    for name, tokenizer in tokenizers.items():
        tokenizer.save(str(folder / f"{name}.json"), pretty=False)
        write(folder, name, tokenizer, count)


def main():
    folder = Path(sys.argv[1])
    count = int(sys.argv[2]) if len(sys.argv) > 2 else TEXTS
    folder.mkdir(parents=True, exist_ok=True)
    trained(folder, count)
    for path in map(Path, sys.argv[3:]):
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        write(folder, path.parent.name, tokenizer, count)


if __name__ == "__main__":
    main()
