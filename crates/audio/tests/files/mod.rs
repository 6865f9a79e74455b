//! Golden files, and the samples of files.

use std::io::Cursor;
use std::path::Path;
use tabla_audio::AudioReader;
use tabla_core::error::Result;

/// A file of `tests/golden`.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    std::fs::read(path.join(name)).expect(name)
}

/// All samples of a reader.
pub(crate) fn read(reader: Result<AudioReader>) -> Result<Vec<f32>> {
    let (mut reader, mut out) = (reader?, Vec::new());
    while reader.read(5000, &mut out)? > 0 {}
    Ok(out)
}

/// Samples of a file, as a file and as a stream.
pub(crate) fn decode(name: &str, file: &[u8]) -> Vec<f32> {
    let found = read(AudioReader::from_bytes(file.to_vec())).expect(name);
    let streamed = read(AudioReader::from_reader(Cursor::new(file.to_vec()))).expect(name);
    assert!(found == streamed, "{name} as a stream");
    found
}
