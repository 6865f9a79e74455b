//! A digest of bytes, the same in every build: FNV-1a of 64 bits. It finds files again and tells
//! damage; against malice it is none.

/// What was added so far.
#[derive(Debug)]
pub struct Digest(u64);

impl Digest {
    /// Nothing added.
    #[expect(clippy::new_without_default, reason = "nothing asks for a default")]
    pub fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    }

    /// Adds a text and its end.
    pub fn add_text(&mut self, text: &str) {
        self.add(text.as_bytes());
        self.add(&[0xff]);
    }

    /// The digest of what was added.
    pub fn value(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_fnv_1a() {
        let mut digest = Digest::new();
        digest.add(b"foo");
        digest.add(b"bar");
        assert_eq!(digest.value(), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn it_knows_where_texts_end() {
        let of = |texts: &[&str]| {
            let mut digest = Digest::new();
            texts.iter().for_each(|text| digest.add_text(text));
            digest.value()
        };
        assert_ne!(of(&["a", "b"]), of(&["ab"]));
        assert_ne!(of(&["a", "b"]), of(&["b", "a"]));
    }
}
