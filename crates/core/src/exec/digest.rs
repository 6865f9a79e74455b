//! 64-bit FNV-1a digest, stable across builds. For cache keys and corruption checks; not
//! cryptographic.

/// Incremental FNV-1a digest.
#[derive(Debug)]
pub struct Digest(u64);

impl Digest {
    /// Creates the digest of no bytes.
    #[expect(clippy::new_without_default, reason = "no caller needs Default")]
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    }

    /// Adds a string and a terminator.
    pub fn add_text(&mut self, text: &str) {
        self.add(text.as_bytes());
        self.add(&[0xff]);
    }

    /// Returns the digest of all added bytes.
    pub fn value(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_fnv_1a() {
        let mut digest = Digest::new();
        digest.add(b"foo");
        digest.add(b"bar");
        assert_eq!(digest.value(), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn separates_strings() {
        let of = |texts: &[&str]| {
            let mut digest = Digest::new();
            texts.iter().for_each(|text| digest.add_text(text));
            digest.value()
        };
        assert_ne!(of(&["a", "b"]), of(&["ab"]));
        assert_ne!(of(&["a", "b"]), of(&["b", "a"]));
    }
}
