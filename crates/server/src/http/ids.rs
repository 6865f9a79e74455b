//! Random identifiers and seeds.

use ring::rand::{SecureRandom, SystemRandom};

const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Returns an identifier: the prefix and 24 random letters and digits.
pub(crate) fn new_id(prefix: &str) -> String {
    let mut bytes = [0; 24];
    // Fails only without an entropy source. Identifiers then are not unique, which breaks no promise.
    let _ = SystemRandom::new().fill(&mut bytes);
    let letter = |byte: &u8| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]);
    let mut id = String::from(prefix);
    id.extend(bytes.iter().map(letter));
    id
}

/// Returns a random seed that JSON numbers represent exactly.
pub(crate) fn new_seed() -> u64 {
    let mut bytes = [0; 4];
    let _ = SystemRandom::new().fill(&mut bytes);
    u64::from(u32::from_le_bytes(bytes))
}
