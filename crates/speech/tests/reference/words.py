"""Writes golden/words.json: alignment and words of OpenAI's timing.py and tokenizer.py.

    pip install openai-whisper==20250625
    python words.py > ../golden/words.json

dtw: matrices of small integers, which have ties, and the first column of each row on the path.
split: bytes of the tokens of texts in hexadecimal, and the number of tokens of each word.
align: number of text tokens, spectrogram frames, and words with times and probability, for the
attention and the logits of this file.
suppressed: for the English and the multilingual vocabulary, the tokens suppressed by default.
"""

import json
import random
from types import SimpleNamespace

import numpy as np
import torch
from whisper.decoding import DecodingOptions, DecodingTask
from whisper.timing import dtw_cpu, find_alignment
from whisper.tokenizer import get_tokenizer

HEADS, COLUMNS = 3, 200
TEXTS = {
    "en": [
        " And so, my fellow Americans: ask not what your country can do for you!",
        ' He said, "It\'s 3.5%..." (twice) -- don\'t.\n New line 😀👍🏽 done 𝔘𝔫𝔦',
        " naïve café, Zürich; æther",
    ],
    "de": [" Übergrößenträger fährt Straße. „Ja“, sagte sie – «nein»?"],
    "ru": [" Съешь ещё этих мягких французских булок, да выпей чаю."],
    "zh": ["你好,世界!今天天氣很好。𠮷野家"],
    "ja": ["吾輩は猫である。名前はまだ無い。", "😀の絵文字👨‍👩‍👧です"],
    "th": ["สวัสดีครับ ผมชื่อ"],
    "ko": [" 안녕하세요, 세계! 뷁 쀍"],
    "ar": [" مرحبا بالعالم، كيف حالك؟"],
}


def noise(count, seed):
    """Multiples of 2^-8 from -1 to 1, from a multiplicative hash."""
    x = np.arange(count, dtype=np.uint32) * np.uint32(2654435761)
    x += np.uint32(seed * 0x9E3779B9 % 2**32)
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x85EBCA6B)
    x ^= x >> np.uint32(13)
    return (x >> np.uint32(23)).astype(np.float32) * np.float32(2.0**-8) - np.float32(1)


def dtw_cases():
    draw = random.Random(1)
    for _ in range(60):
        rows, columns = draw.randrange(1, 9), draw.randrange(1, 13)
        values = [[draw.randrange(-3, 4) for _ in range(columns)] for _ in range(rows)]
        text, time = dtw_cpu(np.array(values, dtype=np.float64))
        first = [int(time[text == row].min()) for row in range(rows)]
        yield [columns, sum(values, []), first]


def split_cases():
    for language, texts in TEXTS.items():
        tokenizer = get_tokenizer(True, language=language, task="transcribe")
        for text in texts:
            tokens = tokenizer.encode(text)
            for end in {len(tokens), len(tokens) - 1, len(tokens) // 2, len(tokens) // 3}:
                part = tokens[:end]
                _, words = tokenizer.split_to_word_tokens(part + [tokenizer.eot])
                if words[-1] != [tokenizer.eot]:
                    continue  # tokens at the end are lost
                pieces = [tokenizer.encoding.decode_single_token_bytes(t).hex() for t in part]
                yield [language, " ".join(pieces), [len(word) for word in words[:-1]]]


class Attention(torch.nn.Module):
    """Returns scores instead of cross-attention."""

    def __init__(self, scores):
        super().__init__()
        self.scores = scores

    def forward(self, x):
        return x, self.scores[None]


class Model:
    """The parts of a model that find_alignment uses."""

    def __init__(self, scores, logits):
        self.attention = Attention(scores)
        self.logits = logits
        self.decoder = SimpleNamespace(blocks=[SimpleNamespace(cross_attn=self.attention)])
        self.dims = SimpleNamespace(n_text_layer=1)
        self.device = torch.device("cpu")
        heads = torch.ones(1, HEADS, dtype=torch.bool)
        self.alignment_heads = heads.to_sparse()

    def __call__(self, mel, tokens):
        self.attention(mel)
        return self.logits[None]


def align_cases():
    tokenizer = get_tokenizer(True, language="en", task="transcribe")
    tokens = tokenizer.encode(TEXTS["en"][0])
    for seed, frames in enumerate([400, 399, 300, 120]):
        part = tokens[: len(tokens) - 3 * seed]
        rows = 4 + len(part) + 1
        column = np.arange(COLUMNS, dtype=np.float32)
        row = np.arange(rows, dtype=np.float32)[:, None]
        near = np.maximum(np.float32(0), np.float32(8) - np.abs(column - row * 9))
        scores = near * np.float32(0.5) + noise(HEADS * rows * COLUMNS, seed).reshape(
            HEADS, rows, COLUMNS
        )
        logits = torch.zeros(rows, 51865)
        for at, token in enumerate(part):
            logits[3 + at, token] = 8 + at % 7
        model = Model(torch.tensor(scores), logits)
        words = find_alignment(model, tokenizer, part, torch.zeros(1), frames)
        words = [[w.word, len(w.tokens), w.start, w.end, w.probability] for w in words]
        pieces = [tokenizer.encoding.decode_single_token_bytes(t).hex() for t in part]
        yield [seed, frames, " ".join(pieces), words]


def suppressed():
    for name, multilingual in [("en", False), ("multilingual", True)]:
        task = SimpleNamespace(
            options=DecodingOptions(),
            tokenizer=get_tokenizer(multilingual, language="en", task="transcribe"),
        )
        yield DecodingTask._get_suppress_tokens(task)


def main():
    out = {
        "dtw": list(dtw_cases()),
        "split": list(split_cases()),
        "align": list(align_cases()),
        "suppressed": list(suppressed()),
    }
    lines = [
        json.dumps(key) + ": [\n" + ",\n".join(json.dumps(c, separators=(",", ":")) for c in cases)
        + "\n]"
        for key, cases in out.items()
    ]
    print("{\n" + ",\n".join(lines) + "\n}")


main()
