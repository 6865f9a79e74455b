//! Edits of bytes of a valid file.

use super::choices::Choices;

/// Changes bytes within `places`, as long as there are choices: a byte, a number of eight bytes, or the length.
pub(crate) fn edit(file: &mut Vec<u8>, places: std::ops::Range<usize>, choices: &mut Choices<'_>) {
    while !choices.is_empty() && !places.is_empty() {
        let at = places.start + choices.position() % places.len();
        match choices.below(8) {
            0 => file.truncate(at),
            1 => put(file, at, &choices.extreme().to_le_bytes()),
            2 => put(file, at, &choices.extreme().to_le_bytes()[..4]),
            3 => put(file, at, &[0; 16]),
            4 => {
                let from = places.start + choices.position() % places.len();
                let copy: Vec<u8> = file.iter().skip(from).take(16).copied().collect();
                put(file, at, &copy);
            }
            _ => put(file, at, &[choices.byte()]),
        }
    }
}

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    let to = file.iter_mut().skip(at);
    to.zip(bytes).for_each(|(to, byte)| *to = *byte);
}
