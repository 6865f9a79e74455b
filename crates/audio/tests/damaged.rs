//! Files with wrong sizes, damaged metadata or a missing end: what is there is decoded.

#![expect(
    clippy::cast_possible_truncation,
    reason = "sizes are small, and samples are rounded to the format of the file"
)]

use std::io::Cursor;
use std::path::Path;
use tabla_audio::AudioReader;
use tabla_core::error::{ErrorKind, Result};

fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    std::fs::read(path.join(name)).expect(name)
}

fn read(reader: Result<AudioReader>) -> Result<Vec<f32>> {
    let (mut reader, mut out) = (reader?, Vec::new());
    while reader.read(5000, &mut out)? > 0 {}
    Ok(out)
}

/// Samples of a file, as a file and as a stream.
fn decode(name: &str, file: &[u8]) -> Vec<f32> {
    let found = read(AudioReader::from_bytes(file.to_vec())).expect(name);
    let streamed = read(AudioReader::from_reader(Cursor::new(file.to_vec()))).expect(name);
    assert!(found == streamed, "{name} as a stream");
    found
}

/// 16-bit samples, none of whose bytes are those of a name.
fn samples() -> Vec<u8> {
    let sample = |i: i32| (((i * 7919) % 20_000 - 10_000) as i16 | 1).to_le_bytes();
    (0..9001).flat_map(sample).collect()
}

fn values(samples: &[u8]) -> Vec<f32> {
    let (pairs, _) = samples.as_chunks::<2>();
    pairs
        .iter()
        .map(|pair| f32::from(i16::from_le_bytes(*pair)) / 32768.0)
        .collect()
}

fn chunk(name: &[u8; 4], size: u32, body: &[u8]) -> Vec<u8> {
    [&name[..], &size.to_le_bytes(), body].concat()
}

/// A chunk of the size that it states, and its padding.
fn whole(name: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut chunk = chunk(name, body.len() as u32, body);
    chunk.resize(chunk.len().next_multiple_of(2), 0);
    chunk
}

/// Format of samples at 16 kHz: code, channels and bits.
fn pcm_format(code: u16, channels: u16, bits: u16) -> Vec<u8> {
    let frame = channels * bits / 8;
    let mut out = [code.to_le_bytes(), channels.to_le_bytes()].concat();
    out.extend(16_000u32.to_le_bytes());
    out.extend((16_000 * u32::from(frame)).to_le_bytes());
    out.extend([frame.to_le_bytes(), bits.to_le_bytes()].concat());
    out
}

/// An extensible format with a mask of channels.
fn extensible(code: u16, channels: u16, bits: u16, valid: u16) -> Vec<u8> {
    let mut out = pcm_format(0xfffe, channels, bits);
    out.extend([22u16.to_le_bytes(), valid.to_le_bytes()].concat());
    out.extend(4u32.to_le_bytes());
    out.extend(code.to_le_bytes());
    out.extend([0, 0, 0, 0, 16, 0, 128, 0, 0, 170, 0, 56, 155, 113]);
    out
}

fn pcm() -> Vec<u8> {
    whole(b"fmt ", &pcm_format(1, 1, 16))
}

fn riff(magic: &[u8; 4], size: u32, chunks: &[Vec<u8>]) -> Vec<u8> {
    [&magic[..], &size.to_le_bytes(), b"WAVE", &chunks.concat()].concat()
}

/// The information that ffmpeg writes, with an odd size.
fn info() -> Vec<u8> {
    [
        &b"INFO"[..],
        &whole(b"ICMT", b"my data file"),
        &chunk(b"ISFT", 13, b"Lavf60.16.100"),
    ]
    .concat()
}

#[test]
fn sizes_of_wav_files_may_be_wrong() {
    let samples = samples();
    let size = samples.len() as u32;
    let data = |size: u32| chunk(b"data", size, &samples);
    let expected = values(&samples);
    let check = |name: &str, file: Vec<u8>| {
        assert!(decode(name, &file) == expected, "{name}");
    };
    for wrong in [
        0,
        1,
        4,
        36,
        size,
        size + 35,
        size + 37,
        u32::MAX - 1,
        u32::MAX,
    ] {
        check(
            &format!("RIFF of {wrong}"),
            riff(b"RIFF", wrong, &[pcm(), data(size)]),
        );
    }
    for wrong in [
        0,
        2,
        7,
        size - 2,
        size - 1,
        size + 1,
        size + 1000,
        0x7fff_ffff,
        u32::MAX,
    ] {
        let file = riff(b"RIFF", size + 36, &[pcm(), data(wrong)]);
        check(&format!("data of {wrong}"), file);
    }
}

#[test]
fn sizes_of_lists_in_wav_files_may_be_wrong() {
    let samples = samples();
    let size = samples.len() as u32;
    let data = |size: u32| chunk(b"data", size, &samples);
    let expected = values(&samples);
    let check = |name: &str, file: Vec<u8>| {
        assert!(decode(name, &file) == expected, "{name}");
    };
    let info = info();
    let right = info.len() as u32;
    for wrong in [
        0,
        3,
        4,
        right - 9,
        right - 1,
        right + 1,
        right + 2,
        right + 5,
        right + 8,
        20_000,
        u32::MAX,
    ] {
        for padding in [0, 1] {
            let mut list = chunk(b"LIST", wrong, &info);
            list.resize(list.len() + padding, 0);
            let file = riff(b"RIFF", size + 36, &[pcm(), list.clone(), data(size)]);
            check(&format!("LIST of {wrong} and {padding} bytes"), file);
            let file = riff(b"RIFF", size + 36, &[list, pcm(), data(size)]);
            check(&format!("LIST of {wrong} and {padding} bytes first"), file);
        }
    }
    for padding in [0, 1] {
        let mut list = chunk(b"LIST", right, &info);
        list.resize(list.len() + padding, 0);
        check(
            &format!("padding of {padding}"),
            riff(b"RIFF", 0, &[pcm(), list, data(size)]),
        );
    }
    for wrong in [15, 17, 18, 40, 1000] {
        let file = riff(
            b"RIFF",
            0,
            &[chunk(b"fmt ", wrong, &pcm_format(1, 1, 16)), data(size)],
        );
        check(&format!("fmt of {wrong}"), file);
    }
}

#[test]
fn other_chunks_are_skipped() {
    let samples = samples();
    let expected = values(&samples);
    let data = whole(b"data", &samples);
    let cover = vec![0x41; 200_000];
    let before = [
        Vec::new(),
        whole(b"JUNK", &[0; 28]),
        whole(b"bext", &[b'x'; 603]),
        whole(b"abcd", &[1, 2, 3]),
        whole(b"id3 ", &cover),
        chunk(b"id3 ", 17, b"ID3\x03\0\0\xff\xff\xff\xff broken."),
        whole(b"fact", &[1, 2, 3]),
        whole(b"LIST", b"INFOICMT\xff\xff\xff\xffbroken"),
    ];
    let after = [
        Vec::new(),
        whole(b"LIST", &info()),
        chunk(b"LIST", u32::MAX, b"INFO"),
        chunk(b"id3 ", 9999, b"ID3\x03"),
        whole(b"abcd", &[1, 2, 3]),
        [&b"TAG"[..], &[b' '; 125]].concat(),
    ];
    for (i, before) in before.iter().enumerate() {
        for (j, after) in after.iter().enumerate() {
            let parts = [pcm(), before.clone(), data.clone(), after.clone()];
            let name = format!("chunks {i} and {j}");
            assert!(
                decode(&name, &riff(b"RIFF", 1, &parts)) == expected,
                "{name}"
            );
        }
    }
    // Padding of an odd number of samples of a byte.
    let bytes: Vec<u8> = (0..1001).map(|i| (i % 200) as u8).collect();
    let chunks = [whole(b"fmt ", &pcm_format(1, 1, 8)), whole(b"data", &bytes)];
    let expected: Vec<f32> = bytes
        .iter()
        .map(|x| (f32::from(*x) - 128.0) / 128.0)
        .collect();
    assert!(decode("bytes", &riff(b"RIFF", 0, &chunks)) == expected);
}

#[test]
fn sizes_of_64_bits_are_read() {
    let samples = samples();
    let expected = values(&samples);
    let size = samples.len() as u64;
    let trailer = whole(b"LIST", &info());
    for magic in [b"RF64", b"BW64", b"RIFF"] {
        for stated in [size, 0, size - 2, size + 10, u64::MAX] {
            let sizes = [size + 72, stated, size / 2].map(u64::to_le_bytes).concat();
            let sizes = whole(b"ds64", &[&sizes[..], &[0; 4]].concat());
            let data = chunk(b"data", u32::MAX, &samples);
            for before in [Vec::new(), sizes] {
                let file = riff(magic, u32::MAX, &[before, pcm(), data.clone()]);
                let name = format!("{} of {stated}", magic.escape_ascii());
                assert!(decode(&name, &file) == expected, "{name}");
            }
        }
        let sizes = [size + 72, size, size / 2].map(u64::to_le_bytes).concat();
        let sizes = whole(b"ds64", &[&sizes[..], &[0; 4]].concat());
        let data = chunk(b"data", u32::MAX, &samples);
        let file = riff(magic, u32::MAX, &[sizes, pcm(), data, trailer.clone()]);
        assert!(decode("a chunk after the samples", &file) == expected);
    }
}

#[test]
fn extensible_formats_are_those_in_their_guid() {
    let samples = samples();
    let pcm16 = values(&samples);
    let wide: Vec<u8> = pcm16
        .iter()
        .flat_map(|x| ((x * 8_388_608.0) as i32).to_le_bytes()[..3].to_vec())
        .collect();
    let floats: Vec<u8> = pcm16.iter().flat_map(|x| x.to_le_bytes()).collect();
    // Two equal channels.
    let frames = samples.as_chunks::<2>().0.iter();
    let stereo: Vec<u8> = frames.flat_map(|x| [*x, *x].concat()).collect();
    for (name, format, data) in [
        ("16 bits", extensible(1, 1, 16, 16), &samples),
        ("12 of 16 bits", extensible(1, 1, 16, 12), &samples),
        ("24 bits", extensible(1, 1, 24, 24), &wide),
        ("20 of 24 bits", extensible(1, 1, 24, 20), &wide),
        ("f32", extensible(3, 1, 32, 0), &floats),
        (
            "stereo with a mask of one",
            extensible(1, 2, 16, 16),
            &stereo,
        ),
        (
            "f32 with a size",
            [pcm_format(3, 1, 32), vec![0, 0]].concat(),
            &floats,
        ),
        (
            "f32 with data",
            [pcm_format(3, 1, 32), vec![2, 0, 9, 9]].concat(),
            &floats,
        ),
        (
            "16 bits with data",
            [pcm_format(1, 1, 16), vec![4, 0, 9, 9, 9, 9]].concat(),
            &samples,
        ),
    ] {
        let file = riff(b"RIFF", 0, &[whole(b"fmt ", &format), whole(b"data", data)]);
        assert!(decode(name, &file) == pcm16, "{name}");
    }
    // A-law without its size, and as an extensible format.
    let file = golden("chirp_alaw.wav");
    let expected = decode("A-law", &file);
    let at = file.windows(4).position(|w| w == b"data").expect("samples");
    for format in [&file[20..36], &extensible(6, 1, 8, 8)] {
        let mut format = format.to_vec();
        format[4..8].copy_from_slice(&8000u32.to_le_bytes());
        let chunks = [whole(b"fmt ", &format), file[at..].to_vec()];
        assert!(decode("A-law", &riff(b"RIFF", 0, &chunks)) == expected);
    }
}

#[test]
fn truncated_wav_files_have_the_samples_before() {
    let samples = samples();
    let file = riff(b"RIFF", 0, &[pcm(), whole(b"data", &samples)]);
    let expected = values(&samples);
    for cut in [1, 2, 3, 999, 10_000] {
        let found = decode("a truncated file", &file[..file.len() - cut]);
        assert!(
            found == expected[..expected.len() - cut.div_ceil(2)],
            "{cut}"
        );
    }
}

/// Compressed files of more than one packet, and whether the header is at the end.
const COMPRESSED: [(&str, bool); 14] = [
    ("chirp.mp3", false),
    ("chirp.flac", false),
    ("chirp.ogg", false),
    ("chirp.opus", false),
    ("chirp_voice.opus", false),
    ("chirp_hybrid.opus", false),
    ("chirp_surround.opus", false),
    ("chirp.m4a", true),
    ("chirp_alac.m4a", false),
    ("chirp_fragmented.m4a", false),
    ("chirp.aac", false),
    ("chirp.webm", false),
    ("chirp_vorbis.webm", false),
    ("chirp_adpcm.wav", false),
];

#[test]
fn truncated_files_have_the_audio_before() {
    for (name, ends_in_header) in COMPRESSED {
        let file = golden(name);
        let all = read(AudioReader::from_bytes(file.clone())).expect(name);
        let mut reader = AudioReader::from_bytes(file.clone()).expect(name);
        while reader.read(5000, &mut Vec::new()).expect(name) > 0 {}
        assert_eq!(reader.warning(), None, "{name}");
        for percent in (5..100).step_by(5) {
            let part = &file[..file.len() * percent / 100];
            let found = read(AudioReader::from_bytes(part.to_vec()));
            let streamed = read(AudioReader::from_reader(Cursor::new(part.to_vec())));
            match (found, streamed) {
                (Ok(found), _) => {
                    assert!(!found.is_empty(), "{name}: no error at {percent} %");
                    assert!(!ends_in_header, "{name} at {percent} %");
                    // The last packet may have samples that the whole file removes.
                    let same = found.len().min(all.len()).saturating_sub(2100);
                    assert!(found.len() <= all.len() + 2048, "{name} at {percent} %");
                    let differs = found
                        .iter()
                        .zip(&all)
                        .take(same)
                        .any(|(x, y)| (x - y).abs() > 1e-5);
                    assert!(!differs, "{name} at {percent} %");
                }
                (Err(e), Ok(_)) => panic!("{name} at {percent} % as a file: {e}"),
                (Err(e), Err(_)) => {
                    let kinds = [ErrorKind::Format, ErrorKind::Unsupported];
                    assert!(kinds.contains(&e.kind()), "{name}: {e}");
                }
            }
        }
    }
}

#[test]
fn most_of_a_truncated_file_is_decoded() {
    for (name, percent, least) in [
        ("chirp.mp3", 90, 0.8),
        ("chirp.flac", 95, 0.7),
        ("chirp_hybrid.opus", 90, 0.75),
        ("chirp_alac.m4a", 90, 0.8),
        ("chirp_fragmented.m4a", 90, 0.7),
        ("chirp.aac", 90, 0.75),
        ("chirp.webm", 95, 0.9),
        ("chirp_vorbis.webm", 95, 0.7),
        ("chirp_adpcm.wav", 90, 0.6),
    ] {
        let file = golden(name);
        let all = read(AudioReader::from_bytes(file.clone()))
            .expect(name)
            .len();
        let mut reader =
            AudioReader::from_bytes(file[..file.len() * percent / 100].to_vec()).expect(name);
        let mut found = Vec::new();
        while reader.read(5000, &mut found).expect(name) > 0 {}
        let is_stated = [
            "chirp_alac.m4a",
            "chirp.webm",
            "chirp_vorbis.webm",
            "chirp_adpcm.wav",
        ];
        if is_stated.contains(&name) {
            let warning = reader.warning().unwrap_or_default();
            assert!(warning.contains("truncated"), "{name}: {warning}");
        }
        let part = found.len() as f64 / all as f64;
        assert!(part >= least, "{name}: {part} at {percent} %");
    }
}

#[test]
fn damaged_tags_of_flac_files_are_skipped() {
    let file = golden("chirp.flac");
    let expected = decode("chirp.flac", &file);
    let frames = 42
        + file[42..]
            .windows(2)
            .position(|w| w == [0xff, 0xf8])
            .expect("a frame");
    let block =
        |kind: u8, size: u32, body: &[u8]| [&[kind], &size.to_be_bytes()[1..], body].concat();
    let picture = vec![0xff; 300_000];
    for (name, blocks) in [
        ("no blocks", vec![]),
        (
            "comments that are too long",
            vec![block(4, 12, &[255; 12]), block(0x81, 4, &[0; 4])],
        ),
        (
            "a damaged picture",
            vec![block(6, 40, &[255; 40]), block(0x81, 4, &[0; 4])],
        ),
        ("a large picture", vec![block(0x86, 300_000, &picture)]),
        (
            "a size that is too large",
            vec![block(0x84, 0xff_ffff, &[0; 40])],
        ),
        (
            "a size over the start of the audio",
            vec![block(0x84, 60, &[0; 40])],
        ),
        (
            "a size that is too small",
            vec![block(0x86, 20, &picture[..4000])],
        ),
        (
            "two seek tables",
            vec![block(3, 18, &[0; 18]), block(0x83, 18, &[0; 18])],
        ),
        ("a cue sheet", vec![block(0x85, 30, &[255; 30])]),
        ("an unknown block", vec![block(0x80 | 99, 30, &[255; 30])]),
    ] {
        let mut facts = file[..42].to_vec();
        facts[4] = if blocks.is_empty() { 0x80 } else { 0 };
        let damaged = [facts, blocks.concat(), file[frames..].to_vec()].concat();
        let found = read(AudioReader::from_bytes(damaged)).expect(name);
        assert!(
            found == expected,
            "{name}: {} of {} samples",
            found.len(),
            expected.len()
        );
    }
}

#[test]
fn damaged_id3_tags_are_skipped() {
    let tag = |version: u8, flags: u8, size: u32, body: &[u8]| {
        let size = [21, 14, 7, 0].map(|shift| (size >> shift & 0x7f) as u8);
        [b"ID3", &[version, 0, flags][..], &size, body].concat()
    };
    let frame = |size: u32, body: &[u8]| [b"APIC", &size.to_be_bytes()[..], &[0, 0], body].concat();
    let text = vec![b'x'; 1000];
    for name in ["chirp.mp3", "chirp.aac", "chirp.flac"] {
        let file = golden(name);
        let expected = decode(name, &file);
        for (what, tag) in [
            ("an intact tag", tag(3, 0, 1010, &frame(1000, &text))),
            (
                "a frame beyond the tag",
                tag(3, 0, 1010, &frame(5000, &text)),
            ),
            ("a frame of 4 GB", tag(4, 0, 1010, &frame(u32::MAX, &text))),
            (
                "a tag beyond the file",
                tag(3, 0, 100_000_000, &frame(1000, &text)),
            ),
            (
                "a tag that is too small",
                tag(3, 0, 500, &frame(1000, &text)),
            ),
            ("an unknown version", tag(9, 0, 1010, &frame(1000, &text))),
            (
                "a damaged extended header",
                tag(3, 0x40, 1010, &frame(1000, &text)),
            ),
            (
                "a large picture",
                tag(3, 0, 3_000_010, &frame(3_000_000, &vec![b'x'; 3_000_000])),
            ),
        ] {
            let found = read(AudioReader::from_bytes([tag, file.clone()].concat()));
            let found = found.unwrap_or_else(|e| panic!("{name} with {what}: {e}"));
            assert!(
                found == expected,
                "{name} with {what}: {} samples",
                found.len()
            );
        }
    }
}

#[test]
fn damaged_comments_of_ogg_files_are_skipped() {
    for name in ["chirp.ogg", "chirp.opus"] {
        let file = golden(name);
        let expected = decode(name, &file);
        let signature = if name == "chirp.ogg" {
            &b"\x03vorbis"[..]
        } else {
            b"OpusTags"
        };
        let at = file.windows(signature.len()).position(|w| w == signature);
        let at = at.expect("comments") + signature.len();
        for damage in [[255; 4], [0, 1, 0, 0], [1, 0, 0, 0x80]] {
            // Also the checksum of the page is wrong then.
            let mut file = file.clone();
            file[at..at + 4].copy_from_slice(&damage);
            assert!(
                read(AudioReader::from_bytes(file)).expect(name) == expected,
                "{name}"
            );
        }
    }
}

#[test]
fn damaged_tags_of_mp4_files_are_skipped() {
    let file = golden("chirp.m4a");
    let expected = read(AudioReader::from_bytes(file.clone())).expect("an intact file");
    let part =
        |kind: &[u8; 4], size: u32, body: &[u8]| [&size.to_be_bytes()[..], kind, body].concat();
    let movie = file
        .windows(4)
        .position(|w| w == b"moov")
        .expect("a header")
        - 4;
    for (name, tags) in [
        ("no tags", part(b"udta", 8, &[])),
        (
            "a list without a handler",
            part(
                b"udta",
                24,
                &part(b"meta", 16, &[0, 0, 0, 0, 255, 255, 255, 255]),
            ),
        ),
        (
            "an item beyond the list",
            part(
                b"udta",
                28,
                &part(b"meta", 20, &part(b"ilst", 200, &[0, 0, 0, 0])),
            ),
        ),
        (
            "user data beyond the movie",
            part(b"udta", 4000, &part(b"meta", 300, &[0; 4])),
        ),
        ("text", part(b"udta", 16, b"not boxs")),
    ] {
        let mut file = file.clone();
        let size = (file.len() - movie + tags.len()) as u32;
        file[movie..movie + 4].copy_from_slice(&size.to_be_bytes());
        file.extend(tags);
        let found = read(AudioReader::from_bytes(file)).expect(name);
        assert!(found == expected, "{name}");
    }
}

#[test]
fn damaged_tags_of_matroska_files_are_skipped() {
    for name in ["chirp.webm", "chirp_vorbis.webm"] {
        let file = golden(name);
        let expected = decode(name, &file);
        let cluster = file
            .windows(4)
            .position(|w| w == [0x1f, 0x43, 0xb6, 0x75])
            .expect("a cluster");
        for (what, element) in [
            (
                "tags with a string beyond them",
                &b"\x12\x54\xc3\x67\x8a\x73\x73\x87\x67\xc8\x84\x45\xa3\x8f\x41"[..],
            ),
            (
                "tags without content",
                b"\x12\x54\xc3\x67\x84\xff\xff\xff\xff",
            ),
            (
                "an attachment without data",
                b"\x19\x41\xa4\x69\x84\x61\xa7\x81\x00",
            ),
            (
                "chapters without times",
                b"\x10\x43\xa7\x70\x84\x45\xb9\x81\x00",
            ),
        ] {
            let mut file = file.clone();
            file.splice(cluster..cluster, element.iter().copied());
            // The size of the segment is unknown, as in a recording of a browser.
            let segment = file
                .windows(4)
                .position(|w| w == [0x18, 0x53, 0x80, 0x67])
                .expect("a segment");
            file[segment + 4..segment + 12]
                .copy_from_slice(&[1, 255, 255, 255, 255, 255, 255, 255]);
            let found = read(AudioReader::from_bytes(file))
                .unwrap_or_else(|e| panic!("{name} with {what}: {e}"));
            assert!(found == expected, "{name} with {what}");
        }
    }
}
