//! Compressed files with damaged metadata or a missing end: the audio that is there is decoded.

#![expect(clippy::cast_possible_truncation, reason = "sizes are small")]

mod files;

use files::{decode, golden, read};
use std::io::Cursor;
use tabla_audio::AudioReader;
use tabla_core::error::ErrorKind;

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
        assert!(decode(name, &damaged) == expected, "{name}");
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
            let name = format!("{name} with {what}");
            let found = decode(&name, &[tag, file.clone()].concat());
            assert!(found == expected, "{name}: {} samples", found.len());
        }
    }
}

/// Every end in the first pages, such as in the table of a page's segments.
#[test]
fn ogg_files_that_end_in_a_header_do_not_panic() {
    for name in ["chirp.ogg", "chirp.opus"] {
        let file = golden(name);
        for end in 1..300 {
            match read(AudioReader::from_bytes(file[..end].to_vec())) {
                Ok(samples) => assert!(!samples.is_empty(), "{name} of {end} bytes"),
                Err(error) => {
                    let kinds = [ErrorKind::Format, ErrorKind::Unsupported];
                    assert!(
                        kinds.contains(&error.kind()),
                        "{name} of {end} bytes: {error}"
                    );
                }
            }
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
            assert!(decode(name, &file) == expected, "{name}");
        }
    }
}

#[test]
fn damaged_tags_of_mp4_files_are_skipped() {
    let file = golden("chirp.m4a");
    let expected = read(AudioReader::from_bytes(file.clone())).expect("an intact file");
    let part =
        |kind: &[u8; 4], size: u32, body: &[u8]| [&size.to_be_bytes()[..], kind, body].concat();
    let position = |file: &[u8], name: &[u8; 4]| {
        let found = file.windows(4).position(|w| w == name);
        found.expect("a box") - 4
    };
    let movie = position(&file, b"moov");
    let fragmented = golden("chirp_fragmented.m4a");
    let expected_fragmented = decode("an intact file", &fragmented);
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
        file.extend(&tags);
        let found = read(AudioReader::from_bytes(file)).expect(name);
        assert!(found == expected, "{name}");

        // The header comes first, so that a stream can be decoded.
        let mut file = fragmented.clone();
        let start = position(&file, b"moov");
        let size = u32::from_be_bytes(file[start..start + 4].try_into().expect("4 bytes"));
        let end = start + size as usize;
        let size = size + tags.len() as u32;
        file[start..start + 4].copy_from_slice(&size.to_be_bytes());
        for at in 0..file.len() - 20 {
            // The absolute position of the samples of a fragment.
            if &file[at..at + 8] == b"tfhd\0\0\0\x39" {
                let place = &mut file[at + 12..at + 20];
                let offset = u64::from_be_bytes(place.try_into().expect("8 bytes"));
                place.copy_from_slice(&(offset + tags.len() as u64).to_be_bytes());
            }
        }
        file.splice(end..end, tags);
        let found = decode(name, &file);
        assert!(found == expected_fragmented, "{name} in a fragmented file");
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
            let name = format!("{name} with {what}");
            assert!(decode(&name, &file) == expected, "{name}");
        }
    }
}
