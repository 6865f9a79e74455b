//! Audio files of every container and codec with edits, and WAV files that a generator writes chunk by chunk.

use super::super::memory::peak;
use super::choices::Choices;
use super::edits::edit;
use super::errors::check;
use std::io::Cursor;
use std::sync::Arc;
use tabla::Result;
use tabla::audio::AudioReader;

macro_rules! files {
    ($($name:literal)*) => {
        [$(include_bytes!(concat!("../../../crates/audio/tests/golden/", $name))),*]
    };
}

const FILES: [&[u8]; 16] = files!(
    "chirp.aac" "chirp.flac" "chirp.m4a" "chirp.mp3" "chirp.ogg" "chirp.opus" "chirp.webm" "chirp_ac3.mkv"
    "chirp_adpcm.wav" "chirp_alac.m4a" "chirp_alaw.wav" "chirp_fragmented.m4a" "chirp_hybrid.opus"
    "chirp_surround.opus" "chirp_voice.opus" "chirp_vorbis.webm"
);

/// Maximum memory of a reader: windows of resamplers, packets and a seek index. It does not depend on the length.
const MEMORY_MAX: usize = 64 << 20;
/// Maximum number of samples that are read, 10 minutes.
const SAMPLES_MAX: usize = 16_000 * 600;

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let at = choices.below(FILES.len() + 4);
    let file = match FILES.get(at) {
        Some(file) => {
            let mut file = file.to_vec();
            // Headers decide more than packets.
            let most = *choices.pick(&[usize::MAX, 64, 512, 2048]);
            let places = 0..file.len().min(most);
            edit(&mut file, places, &mut choices);
            file
        }
        None => wav(&mut choices),
    };
    let file: Arc<[u8]> = file.into();
    let (shared, streamed) = (file.clone(), Cursor::new(file));
    read(|| AudioReader::from_bytes(shared));
    read(|| AudioReader::from_reader(streamed));
}

fn read(open: impl FnOnce() -> Result<AudioReader>) {
    let (result, peak) = peak(|| -> Result<()> {
        let mut reader = open()?;
        let (mut piece, mut samples) = (Vec::new(), 0);
        while samples < SAMPLES_MAX {
            piece.clear();
            let read = reader.read(4096, &mut piece)?;
            assert_eq!(read, piece.len());
            assert!(
                piece.iter().all(|sample| sample.is_finite()),
                "a sample that is not finite"
            );
            samples += read;
            if read == 0 {
                break;
            }
        }
        assert!(
            reader.duration().is_none_or(|seconds| seconds >= 0.0),
            "{:?} s",
            reader.duration()
        );
        Ok(())
    });
    assert!(peak <= MEMORY_MAX, "{peak} bytes of memory");
    if let Err(error) = result {
        check(&error);
    }
}

/// Writes a RIFF file of chunks.
fn wav(choices: &mut Choices<'_>) -> Vec<u8> {
    let mut file = choices
        .pick(&[*b"RIFF", *b"RF64", *b"RIFX", *b"FORM"])
        .to_vec();
    file.extend(&choices.number(4000).to_le_bytes()[..4]);
    file.extend(b"WAVE");
    let format = chunk_format(choices);
    let mut chunks = vec![(*b"fmt ", format)];
    for _ in 0..choices.below(4) {
        let name = *choices.pick(&[*b"data", *b"LIST", *b"ds64", *b"fact", *b"fmt "]);
        let most = choices.below(64);
        let content = choices.bytes(most).to_vec();
        chunks.push((name, content));
    }
    if choices.rarely(8) {
        chunks.swap_remove(0);
    }
    chunks.push((*b"data", (0..200).collect()));
    for (name, content) in chunks {
        file.extend(name);
        file.extend(&choices.number(content.len() as u64).to_le_bytes()[..4]);
        file.extend(&content);
        file.resize(file.len().next_multiple_of(2), 0);
    }
    let all = 0..file.len();
    edit(&mut file, all, choices);
    file
}

fn chunk_format(choices: &mut Choices<'_>) -> Vec<u8> {
    let code = u64::from(*choices.pick(&[1u16, 3, 6, 7, 2, 0x11, 0xfffe, 0x55]));
    let (channels, bits) = (
        *choices.pick(&[1u64, 2, 6, 32]),
        *choices.pick(&[16u64, 8, 24, 32, 64, 4]),
    );
    let rate = *choices.pick(&[16_000u64, 44_100, 8000, 1000, 768_000]);
    let fields = [
        (code, 2),
        (channels, 2),
        (rate, 4),
        (rate * channels * bits / 8, 4),
        (channels * bits / 8, 2),
        (bits, 2),
        (22, 2),
        (bits, 2),
        (3, 4),
        (1, 2),
    ];
    let fields = &fields[..if choices.rarely(2) { 10 } else { 6 }];
    let mut chunk = Vec::new();
    for (value, bytes) in fields {
        chunk.extend(&choices.number(*value).to_le_bytes()[..*bytes]);
    }
    chunk
}
