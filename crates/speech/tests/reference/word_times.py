"""Writes golden/word_times.json: segments after OpenAI's add_word_timestamps with random alignments.

    pip install openai-whisper==20250625
    python word_times.py > ../golden/word_times.json

Each case: seek of the window, end of the last speech, words with number of tokens, start and end in the
window, segments with start, end and number of text tokens, then the segments with start, end and words.
"""

import json
import random
import sys
from types import SimpleNamespace

import whisper.timing

timing = sys.modules["whisper.timing"]
EOT = 50257
TEXTS = [" And", " so", "you", " my", ".", "?", "。", "!", ",", ' "', '"', " (", ")", " ", "a ", " -"]


def alignment(draw):
    words, at = [], draw.randrange(100)
    durations = draw.choice([[0, 5, 10, 20], [10, 15, 100], [20, 20, 20, 50, 120], [1, 2, 200]])
    for _ in range(draw.randrange(7)):
        end = min(at + draw.choice(durations), 1500)
        tokens = [1] * draw.randrange(1, 3)
        words.append(timing.WordTiming(draw.choice(TEXTS), tokens, at / 50, end / 50, 0.5))
        at = end
    return words


def case(draw):
    words = alignment(draw)
    seek = draw.choice([0, 0, 1234, 3000])
    golden = [[w.word, len(w.tokens), w.start, w.end] for w in words]
    timing.find_alignment = lambda *arguments: words
    left = sum(len(w.tokens) for w in words)
    segments, at = [], seek / 100
    for last in [True] if draw.random() < 0.5 else [False, True]:
        count = left if last else draw.randrange(left + 1)
        left -= count
        end = max(at, words[-1].end + seek / 100 if words else 0)
        near = [draw.choice([0, 0, 0.3, 0.55, 0.8, 1.5]) for _ in range(2)]
        start, end = round(at + near[0], 2), round(end - near[1] if last else at + 1, 2)
        tokens = [50364] + [1] * count + [50365]
        segments.append({"seek": seek, "start": start, "end": end, "tokens": tokens})
        at = end
    before = [[s["start"], s["end"], len(s["tokens"]) - 2] for s in segments]
    speech = max(0, seek / 100 - draw.choice([0, 0, 0.5, 5]))
    timing.add_word_timestamps(
        segments=segments,
        model=None,
        tokenizer=SimpleNamespace(eot=EOT),
        mel=None,
        num_frames=3000,
        last_speech_timestamp=speech,
    )
    after = [
        [s["start"], s["end"], [[w["word"], w["start"], w["end"]] for w in s["words"]]]
        for s in segments
    ]
    return [seek, speech, golden, before, after]


def main():
    draw = random.Random(9)
    cases = [json.dumps(case(draw), separators=(",", ":")) for _ in range(160)]
    print("[\n" + ",\n".join(cases) + "\n]")


main()
