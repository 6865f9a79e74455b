//! WAV files with wrong sizes, other chunks or a missing end: the samples that are there are decoded.

#![expect(
    clippy::cast_possible_truncation,
    reason = "sizes are small, and samples are rounded to the format of the file"
)]

mod files;

use files::{decode, golden};

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
