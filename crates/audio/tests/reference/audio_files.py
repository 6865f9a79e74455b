#!/usr/bin/env python3
"""Encodes one generated chirp with every codec that the crate decodes: writes crates/audio/tests/golden/chirp*.

    apt-get install ffmpeg
    python3 crates/audio/tests/reference/audio_files.py

The signal is that of crates/audio/tests/decode.rs. The second channel of stereo files has half the amplitude.
"""
import math
import struct
import subprocess
from pathlib import Path

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def chirp(rate, count, channels):
    """16-bit samples of a chirp from 400 to 2200 Hz that is faded in and out for 20 ms."""
    out = bytearray()
    for i in range(count):
        t, end = i / rate, (count - 1 - i) / rate
        fade = min(1.0, t / 0.02, end / 0.02)
        x = 0.5 * fade * math.sin(2 * math.pi * (400 * t + 900 * t * t / (count / rate)))
        for channel in range(channels):
            out += struct.pack("<h", round(x / (1 + channel) * 32767))
    return bytes(out)


# Name, rate, number of samples, channels, arguments of the encoder.
FILES = [
    ("chirp.mp3", 22050, 16537, 1, "-c:a libmp3lame -b:a 32k"),
    ("chirp.flac", 8000, 4801, 1, "-c:a flac -metadata_header_padding 16"),
    ("chirp.ogg", 16000, 12001, 2, "-c:a libvorbis -q:a 2"),
    ("chirp.opus", 48000, 36013, 1, "-c:a libopus -b:a 64k -application audio"),
    ("chirp_voice.opus", 16000, 16000, 1, "-c:a libopus -b:a 24k -application voip -frame_duration 60"),
    ("chirp_hybrid.opus", 48000, 33007, 2, "-c:a libopus -b:a 48k -application voip -page_duration 100000"),
    ("chirp_surround.opus", 48000, 12000, 6, "-c:a libopus -b:a 96k -mapping_family 1"),
    ("chirp.m4a", 22050, 16537, 1, "-c:a aac -b:a 32k"),
    ("chirp_alac.m4a", 8000, 4801, 1, "-c:a alac -movflags faststart"),
    ("chirp_fragmented.m4a", 22050, 16537, 2, "-c:a aac -b:a 48k -movflags frag_keyframe+delay_moov -frag_duration 200000"),
    ("chirp.aac", 16000, 8192, 1, "-c:a aac -b:a 32k"),
    ("chirp.webm", 48000, 36013, 1, "-c:a libopus -b:a 64k"),
    ("chirp_vorbis.webm", 16000, 12001, 1, "-c:a libvorbis -q:a 2"),
    ("chirp_adpcm.wav", 8000, 4801, 1, "-c:a adpcm_ima_wav"),
    ("chirp_alaw.wav", 8000, 4801, 1, "-c:a pcm_alaw"),
    ("chirp_ac3.mkv", 32000, 4000, 1, "-c:a ac3 -b:a 32k"),
]


def main():
    for name, rate, count, channels, encoder in FILES:
        raw = f"-f s16le -ar {rate} -ac {channels} -i pipe:0".split()
        common = "-map_metadata -1 -fflags +bitexact -flags:a +bitexact".split()
        command = ["ffmpeg", "-v", "error", "-y", *raw, *common, *encoder.split(), str(GOLDEN / name)]
        subprocess.run(command, input=chirp(rate, count, channels), check=True)
        print(f"{name}: {(GOLDEN / name).stat().st_size} bytes")


if __name__ == "__main__":
    main()
