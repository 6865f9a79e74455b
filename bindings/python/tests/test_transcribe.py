"""Transcription: files, bytes, arrays, streams, errors, and a real speech."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from typing import Any, Iterator

import numpy as np
import pytest
import tabla

from speech_model import ENGLISH, MULTILINGUAL, SEGMENTS, TEXT, tone, write_model, write_voice_model, write_wav

GREEDY: dict[str, Any] = {"beam_size": 1, "temperature_increment": 0}
"""One attempt per window."""


@pytest.fixture(scope="module")
def speech(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tabla.Model]:
    """A small English model."""
    path = write_model(tmp_path_factory.mktemp("speech") / "model.bin", ENGLISH)
    with tabla.Model.load(path, device="cpu") as model:
        yield model


def test_files_bytes_and_arrays_are_transcribed(speech: tabla.Model, tmp_path: Path) -> None:
    path = write_wav(tmp_path / "tone.wav", 3)
    samples = tone(3)
    for audio in (
        path,
        str(path),
        path.read_bytes(),
        samples,
        samples.astype(np.float64),
        (samples * 32767).astype(np.int16),
        np.stack([samples, samples], axis=1),
    ):
        transcript = speech.transcribe(audio, **GREEDY)
        assert transcript.text == str(transcript) == (TEXT * SEGMENTS).strip()
        assert (transcript.language, transcript.duration) == ("en", 3)
        assert [segment.id for segment in transcript.segments] == list(range(SEGMENTS))
        first, second = transcript.segments[:2]
        # Times are within the recording.
        assert (first.start, first.end, second.start, first.text) == (0, 3, 3, TEXT)
        assert first.tokens[1] == 300 and first.words == () and first.seek == 0
        assert first.temperature == 0 and first.avg_logprob < 0
    assert speech.transcribe(samples, sample_rate=8000, **GREEDY).duration == 6


def test_transcripts_have_formats(speech: tabla.Model) -> None:
    transcript = speech.transcribe(tone(30), **GREEDY)
    assert transcript.to_srt().startswith("1\n00:00:00,000 --> 00:00:10,000\nw300\n\n2\n")
    assert transcript.to_vtt().startswith("WEBVTT\n\n00:00.000 --> 00:10.000\nw300\n")
    assert transcript.write("text") == "w300\n" * SEGMENTS
    verbose = json.loads(transcript.write("verbose_json"))
    assert verbose["language"] == "english" and len(verbose["segments"]) == SEGMENTS
    with pytest.raises(tabla.ArgumentError, match="invalid format 'xml'"):
        transcript.write("xml")


def test_segments_are_streamed(speech: tabla.Model, tmp_path: Path) -> None:
    path = write_wav(tmp_path / "tone.wav", 31)
    with speech.transcribe(path, stream=True, **GREEDY) as stream:
        starts = [segment.start for segment in stream]
        assert starts == [min(10 * at, 31) for at in range(2 * SEGMENTS)]
        assert stream.duration == 31 and stream.position >= 31 and stream.language == "en"
        assert stream.write("srt").count("-->") == 2 * SEGMENTS
    with pytest.raises(tabla.HandleError, match="this Transcription is closed"):
        next(stream)


def test_cancellation_precedes_the_first_window(speech: tabla.Model, tmp_path: Path) -> None:
    path = write_wav(tmp_path / "long.wav", 600)
    for audio in path, path.read_bytes(), tone(600):
        with speech.transcribe(audio, stream=True, **GREEDY) as stream:
            # Applies to the next call.
            stream.cancel()
            with pytest.raises(tabla.CancelledError):
                next(stream)
            assert stream.duration == 0
            with pytest.raises(tabla.StateError):
                stream.push(tone(1))
            assert next(stream).text == TEXT
            assert 30 <= stream.duration < 40
    with speech.transcribe(path, stream=True, **GREEDY) as stream:
        path.unlink()
        assert next(stream).text == TEXT


def test_arrays_are_copied(speech: tabla.Model) -> None:
    samples = tone(31)
    with speech.transcribe(samples, stream=True, **GREEDY) as stream:
        samples[:] = np.nan
        assert len(list(stream)) == 2 * SEGMENTS and stream.duration == 31


def test_audio_without_speech_is_skipped(speech: tabla.Model, tmp_path: Path) -> None:
    voices, noise = (write_voice_model(tmp_path / name, bias) for name, bias in (("voices", 9), ("noise", -9)))
    audio = tone(3)
    assert speech.transcribe(audio, vad_model=voices, **GREEDY) == speech.transcribe(audio, **GREEDY)
    options: dict[str, Any] = {"vad_model": str(noise), **GREEDY}
    transcript = speech.transcribe(audio, **options)
    assert (transcript.text, transcript.segments, transcript.duration) == ("", (), 3)
    assert list(speech.transcribe(write_wav(tmp_path / "tone.wav", 3), stream=True, **options)) == []
    assert asyncio.run(speech.atranscribe(audio, **options)) == transcript
    with speech.transcription(**options) as transcription:
        transcription.push(audio)
        transcription.finish()
        assert list(transcription) == []


def test_invalid_voice_models_are_rejected(speech: tabla.Model, tmp_path: Path) -> None:
    audio = write_wav(tmp_path / "tone.wav", 1)
    truncated = write_voice_model(tmp_path / "truncated", 0)
    truncated.write_bytes(truncated.read_bytes()[:-9])
    files: list[tuple[Path | str, type[tabla.TablaError]]] = [
        (tmp_path / "nowhere", tabla.IoError),
        (tmp_path, tabla.IoError),
        (audio, tabla.UnsupportedError),
        (truncated, tabla.FormatError),
    ]
    for file, error in files:
        with pytest.raises(error, match=f"vad_model: {re.escape(str(file))}: "):
            speech.transcribe(audio, vad_model=file)
        with pytest.raises(error, match="vad_model"):
            asyncio.run(speech.atranscribe(audio, vad_model=file, stream=True))
    with pytest.raises(tabla.ArgumentError, match="vad_model is an empty string"):
        speech.transcription(vad_model="")
    with pytest.raises(TypeError):
        speech.transcribe(audio, vad_model=7)  # type: ignore[call-overload]


def test_samples_can_be_pushed(speech: tabla.Model) -> None:
    with speech.transcription(sample_rate=8000, channels=2, **GREEDY) as transcription:
        counts = []
        for _ in range(31):
            transcription.push(np.repeat(tone(0.5)[:, None], 2, axis=1))
            counts.append(len(list(transcription)))
        # The second window starts at 30 seconds, and is complete at the end.
        assert sum(counts) == SEGMENTS and counts[0] == 0
        transcription.finish()
        assert len(list(transcription)) == SEGMENTS
        with pytest.raises(tabla.StateError):
            transcription.push(tone(1))


def test_multilingual_models_detect_and_translate(tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.bin", MULTILINGUAL)
    with tabla.Model.load(path, device="cpu") as model:
        assert model.transcribe(tone(1), **GREEDY).language == "de"
        assert model.transcribe(tone(1), language="french", **GREEDY).language == "fr"
        translated = model.transcribe(tone(1), task="translate", **GREEDY)
        assert json.loads(translated.write("verbose_json"))["task"] == "translate"
        with pytest.raises(tabla.ArgumentError, match="klingon"):
            model.transcribe(tone(1), language="klingon")


def test_async_transcripts_equal_sync_ones(speech: tabla.Model, tmp_path: Path) -> None:
    async def check() -> None:
        expected = speech.transcribe(tone(1), **GREEDY)
        assert await speech.atranscribe(tone(1), **GREEDY) == expected
        async with await speech.atranscribe(tone(1), stream=True, **GREEDY) as stream:
            assert tuple([segment async for segment in stream]) == expected.segments
        path = write_wav(tmp_path / "long.wav", 600)
        task = asyncio.create_task(speech.atranscribe(path, condition_on_previous_text=False))
        await asyncio.sleep(0.2)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(check())


def test_invalid_arguments_are_rejected(speech: tabla.Model, model: tabla.Model, tmp_path: Path) -> None:
    with pytest.raises(tabla.StateError, match="no speech model"):
        model.transcribe(tone(1))
    with pytest.raises(tabla.IoError, match="nowhere"):
        speech.transcribe(tmp_path / "nowhere.wav")
    with pytest.raises(tabla.UnsupportedError, match="not an audio file"):
        speech.transcribe(b"This is a text.")
    with pytest.raises(tabla.ArgumentError, match="beam_size"):
        speech.transcribe(tone(1), beam_size=9)
    with pytest.raises(tabla.ArgumentError, match="invalid task 'sing'"):
        speech.transcribe(tone(1), task="sing")
    with pytest.raises(tabla.ArgumentError, match="float or int16"):
        speech.transcribe(np.zeros(9, np.int64))
    with pytest.raises(tabla.ArgumentError, match=r"\[samples\]"):
        speech.transcribe(np.zeros((1, 1, 1), np.float32))
    with pytest.raises(TypeError, match="did you mean 'beam_size'"):
        speech.transcribe(tone(1), beam_sise=2)  # type: ignore[call-overload]
    with pytest.raises(tabla.TablaError):
        speech.transcribe(np.full(16_000, np.nan, np.float32))


def test_a_speech_is_transcribed() -> None:
    if "TABLA_SPEECH" not in os.environ or "TABLA_TESTDATA" not in os.environ:
        pytest.skip("TABLA_SPEECH or TABLA_TESTDATA is not set")
    audio = Path(os.environ["TABLA_TESTDATA"]) / "audio/jfk.wav"
    with tabla.Model.load(Path(os.environ["TABLA_SPEECH"]) / "ggml-tiny.en.bin", device="cpu") as model:
        transcript = model.transcribe(audio, beam_size=1)
    assert transcript.text == (
        "And so my fellow Americans ask not what your country can do for you ask what you can do for your country."
    )
    assert [(segment.start, segment.end) for segment in transcript.segments] == [(0, 8), (8, 11)]
