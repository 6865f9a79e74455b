//! The character normalization map of `SentencePiece` files.
//!
//! `precompiled_charsmap` is a length in bytes, a double-array trie of that length, and
//! zero-terminated replacement texts. The trie format is that of Darts-clone: a 32-bit unit has the
//! label in bits 0 to 7, bit 8 set if it has a value, and the offset of its children in bits 10 to
//! 30, shifted left by 8 if bit 9 is set. A value unit has bit 31 set and the offset of a text.

use super::base64;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tabla_core::error::{Result, bail};

/// Maximum map size in bytes. The NFKC map has 300 KB.
const MAP_BYTES_MAX: usize = 16 << 20;
/// Maximum replacement text in bytes. NFKC has one of 33.
const TEXT_BYTES_MAX: usize = 256;

/// A character map. The trie is not validated; lookups check bounds.
#[derive(Debug)]
pub(super) struct Charsmap {
    units: Vec<u32>,
    texts: Box<str>,
}

impl Charsmap {
    /// Parses the bytes of `precompiled_charsmap`.
    ///
    /// # Errors
    /// `Format` for an invalid map, `TooLarge` for more than 16 MiB.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MAP_BYTES_MAX {
            let bytes = bytes.len();
            bail!(
                TooLarge,
                "precompiled_charsmap: {bytes} bytes exceed the limit of {MAP_BYTES_MAX}"
            );
        }
        let split = bytes.split_first_chunk().and_then(|(length, rest)| {
            let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
            rest.split_at_checked(length)
        });
        let Some((units, texts)) = split else {
            let bytes = bytes.len();
            bail!(Format, "precompiled_charsmap: truncated at {bytes} bytes");
        };
        let Ok(texts) = str::from_utf8(texts) else {
            bail!(
                Format,
                "precompiled_charsmap: replacement texts are not UTF-8"
            );
        };
        let longest = texts.split('\0').map(str::len).max();
        if longest > Some(TEXT_BYTES_MAX) {
            bail!(
                TooLarge,
                "precompiled_charsmap: a replacement text exceeds the limit of {TEXT_BYTES_MAX} bytes"
            );
        }
        let units = units.chunks_exact(4);
        Ok(Self {
            units: units
                .map(|unit| u32::from_le_bytes(unit.try_into().expect("chunks of four")))
                .collect(),
            texts: texts.into(),
        })
    }

    /// Returns the length and the replacement of each mapped prefix of `text`, shortest first.
    pub(super) fn prefixes(&self, text: &str) -> impl Iterator<Item = (usize, &str)> {
        let mut node = self.units.first().map(|&root| offset(root));
        let bytes = (1..).zip(text.bytes());
        let steps = bytes.map_while(move |(length, byte)| {
            let at = node? ^ usize::from(byte);
            let unit = *self.units.get(at)?;
            // Label 0 is reserved for the value.
            if byte == 0 || unit & (1 << 31 | 0xff) != u32::from(byte) {
                return None;
            }
            let next = at ^ offset(unit);
            node = Some(next);
            Some((unit >> 8 & 1 == 1).then_some((length, next)))
        });
        steps.flatten().filter_map(|(length, value)| {
            let place = self.units.get(value)? & !(1 << 31);
            let text = self.texts.get(usize::try_from(place).ok()?..)?;
            Some((length, text.split('\0').next()?))
        })
    }
}

impl Serialize for Charsmap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let length = u32::try_from(4 * self.units.len()).unwrap_or(u32::MAX);
        let units = std::iter::once(&length).chain(&self.units);
        let mut bytes: Vec<u8> = units.flat_map(|unit| unit.to_le_bytes()).collect();
        bytes.extend_from_slice(self.texts.as_bytes());
        serializer.serialize_str(&base64::encode(&bytes))
    }
}

impl<'de> Deserialize<'de> for Charsmap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = base64::decode(&text).map_err(D::Error::custom)?;
        Self::read(&bytes).map_err(D::Error::custom)
    }
}

/// The offset of a unit's children.
fn offset(unit: u32) -> usize {
    ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabla_core::error::ErrorKind;

    /// A map of `a` to "xy": the root, its child at 1 ^ 'a', and the value.
    fn small() -> Vec<u8> {
        let mut units = vec![0_u32; 256];
        units[0] = 1 << 10;
        units[0x60] = 0x61 | 1 << 8 | 0x20 << 10;
        units[0x40] = 1 << 31 | 2;
        let mut bytes = 1024_u32.to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(b"-\0xy\0");
        bytes
    }

    #[test]
    fn finds_prefix_and_replacement() {
        let map = Charsmap::read(&small()).unwrap();
        assert_eq!(map.prefixes("ab").collect::<Vec<_>>(), [(1, "xy")]);
        assert_eq!(map.prefixes("ba").count() + map.prefixes("").count(), 0);
    }

    #[test]
    fn damaged_maps_do_not_panic() {
        assert_eq!(
            Charsmap::read(&[1, 2]).unwrap_err().kind(),
            ErrorKind::Format
        );
        let long = [&[0; 4][..], &[b'x'; 300]].concat();
        assert_eq!(
            Charsmap::read(&long).unwrap_err().kind(),
            ErrorKind::TooLarge
        );
        let whole = small();
        for at in 4..whole.len() {
            for value in [0, 0x7f, 0xff] {
                let mut bytes = whole.clone();
                bytes[at] = value;
                if let Ok(map) = Charsmap::read(&bytes) {
                    assert!(map.prefixes("aaaa\u{10ffff}").count() < 9);
                }
            }
        }
    }
}
