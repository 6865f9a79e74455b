"""Writes golden/transcribe.json: transcripts of OpenAI's transcribe.py with a model that answers at
random.

    pip install openai-whisper==20250625
    python transcribe.py > ../golden/transcribe.json

vocabulary: text of each text token. cases: frames of audio, words (bool), previous text (bool), tokens
of the initial prompt, initial prompt in every window (bool), thresholds of compression, probability and
no speech, then the windows, the segments, and files as text, srt, vtt and tsv. A window has its number,
first and last token and sum of the prompt, the attempts, and the words of the alignment. An attempt has
temperature, tokens, average log-probability, probability of no speech and compression ratio.
"""

import io
import json
import random
import sys
from types import SimpleNamespace

import numpy as np
import torch
import whisper
from whisper.decoding import DecodingResult
from whisper.tokenizer import get_tokenizer
from whisper.utils import WriteSRT, WriteTSV, WriteTXT, WriteVTT

tokenizer = get_tokenizer(True, language="en", task="transcribe")
TEXTS = [" And", " so", ",", " my", ".", "?", " ", " \"", "you", "!", "'s", " -->", "\t", " Zürich", "-"]
TEXTS += [" country", " (", ")", " ask", "-->"]
VOCABULARY = {token: text for text in TEXTS for token in tokenizer.encode(text)}
VOCABULARY = {token: tokenizer.decode([token]) for token in VOCABULARY}
INITIAL = " And so, my"
timing = sys.modules["whisper.timing"]


class Model:
    device = torch.device("cpu")
    is_multilingual, num_languages = True, 99
    dims = SimpleNamespace(n_mels=80, n_audio_ctx=1500, n_text_ctx=448)

    def __init__(self, draw):
        self.draw = draw
        self.windows = []

    def tokens(self):
        """Segments, sometimes cut, sometimes without timestamps."""
        draw = self.draw
        text = lambda: [draw.choice(list(VOCABULARY)) for _ in range(draw.randrange(1, 7))]
        first = tokenizer.timestamp_begin
        if draw.random() < 0.2:
            return draw.choice([[], text(), [first, *text()], [first + 9, *text()]])
        tokens, at = [], draw.randrange(51)
        for _ in range(draw.randrange(1, 5)):
            end = min(at + draw.randrange(1, 500), 1500)
            tokens += [first + at, *text(), first + end]
            at = min(end + draw.choice([0, 0, 7]), 1500)
        cut = draw.choice([0, 0, 1, 3])
        pair = [tokens[-1]] if draw.random() < 0.4 else []
        return tokens[: len(tokens) - cut] if cut else tokens + pair

    def decode(self, mel, options):
        prompt = options.prompt[-223:]
        if options.temperature == 0:
            ends = [prompt[0], prompt[-1]] if prompt else [0, 0]
            self.windows.append([[len(prompt), *ends, sum(prompt)], [], []])
        draw = self.draw
        result = DecodingResult(
            audio_features=None,
            language="en",
            tokens=self.tokens(),
            temperature=options.temperature,
            avg_logprob=draw.choice([-0.25, -0.25, -0.5, -1.0, -1.25]),
            no_speech_prob=draw.choice([0.125, 0.125, 0.5, 0.625, 0.875]),
            compression_ratio=draw.choice([1.25, 1.5, 1.5, 2.5]),
        )
        assert self.windows[-1][0][0] == len(prompt)
        attempt = [options.temperature, result.tokens, result.avg_logprob]
        self.windows[-1][1].append(attempt + [result.no_speech_prob, result.compression_ratio])
        return result

    def find_alignment(self, model, tokenizer, text_tokens, mel, num_frames):
        if not text_tokens:
            return []
        draw = self.draw
        words, tokens = tokenizer.split_to_word_tokens(text_tokens + [tokenizer.eot])
        steps = lambda: draw.choice([0, 1, 3, 5, 10, 10, 20, 20, 60, 120])
        at, timed = draw.randrange(80), []
        for word, own in zip(words[:-1], tokens[:-1]):
            end = min(at + steps(), num_frames // 2)
            start = min(at, end)
            timed.append(timing.WordTiming(word, own, start / 50, end / 50, draw.randrange(64) / 64))
            at = end
        self.windows[-1][2] = [[len(w.tokens), w.start, w.end, w.probability] for w in timed]
        return timed


def files(result):
    for writer in WriteTXT, WriteSRT, WriteVTT, WriteTSV:
        out = io.StringIO()
        writer(".").write_result(result, file=out, options={})
        yield out.getvalue()


def case(draw):
    words, previous = draw.random() < 0.6, draw.random() < 0.7
    initial, carry = (INITIAL if draw.random() < 0.5 else None), draw.random() < 0.5
    thresholds = [draw.choice([2.4, 2.4, None]), draw.choice([-1.0, -1.0, None])]
    thresholds.append(draw.choice([0.6, 0.6, None]))
    model = Model(draw)
    timing.find_alignment = model.find_alignment
    samples = draw.randrange(10 * 16000, 100 * 16000)
    result = whisper.transcribe(
        model,
        np.zeros(samples, dtype=np.float32),
        language="en",
        fp16=False,
        word_timestamps=words,
        condition_on_previous_text=previous,
        initial_prompt=initial,
        carry_initial_prompt=carry,
        compression_ratio_threshold=thresholds[0],
        logprob_threshold=thresholds[1],
        no_speech_threshold=thresholds[2],
    )
    segments = []
    for s in result["segments"]:
        if not words:
            s.pop("words", None)  # of segments without text, which the writers cannot handle
        own = [[w["word"], w["start"], w["end"], w["probability"]] for w in s.get("words", [])]
        times = [s["id"], s["seek"], s["start"], s["end"]]
        segments.append(times + [s["text"], s["tokens"], s["temperature"], own])
    prompt = tokenizer.encode(" " + initial.strip()) if initial else []
    options = [samples // 160, words, previous, prompt, carry, thresholds]
    return [*options, model.windows, segments, list(files(result))]


def main():
    draw = random.Random(5)
    cases = [json.dumps(case(draw), separators=(",", ":")) for _ in range(28)]
    vocabulary = json.dumps(VOCABULARY, separators=(",", ":"))
    print('{"vocabulary":' + vocabulary + ',"cases":[\n' + ",\n".join(cases) + "\n]}")


main()
