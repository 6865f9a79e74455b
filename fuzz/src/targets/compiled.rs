//! Compiled models with changed bytes. The input is a list of changes: three bytes of the place, one of the value.

use super::forged::{compiled, replay};

pub(crate) fn run(changes: &[u8]) {
    let mut forged = compiled().bytes.clone();
    for [a, b, c, value] in changes.as_chunks::<4>().0 {
        let at = u32::from_le_bytes([*a, *b, *c, 0]) as usize % forged.len();
        forged[at] = *value;
    }
    replay(forged);
}
