//! The pieces of `tokenizer.json` that are too large to be read in the usual way: texts that stay in
//! the file, lists that end at a limit.

use crate::pieces::TOKENS_MAX;
use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// The most merges that are read; Gemma 3 has 514,906.
pub(super) const MERGES_MAX: usize = 4 << 20;

/// A text that lies in the file unless it has escapes.
#[derive(Debug)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

/// A list of `MAX` entries at most.
#[derive(Debug)]
pub(super) struct List<T, const MAX: usize>(pub(super) Vec<T>);

/// Tokens with their ids, or with scores in the order of their ids.
#[derive(Debug)]
pub(super) enum Vocabulary<'a> {
    Ids(Vec<(Text<'a>, u32)>),
    Scores(List<(Text<'a>, f64), TOKENS_MAX>),
}

/// Two parts, in older files as one text with a space between them.
#[derive(Debug)]
pub(super) enum Merge<'a> {
    Pair(Text<'a>, Text<'a>),
    Joined(Text<'a>),
}

impl<T, const MAX: usize> Default for List<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole;
        impl<'de> Visitor<'de> for Whole {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Whole)
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Entries<T, MAX> {
            type Value = List<T, MAX>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of {MAX} entries at most")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = seq.next_element()? {
                    if entries.len() == MAX {
                        return Err(A::Error::invalid_length(MAX + 1, &self));
                    }
                    entries.push(entry);
                }
                Ok(List(entries))
            }
        }
        deserializer.deserialize_seq(Entries(PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Vocabulary<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Vocabulary<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{TOKENS_MAX} tokens at most, with ids or with scores")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut ids = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    if ids.len() == TOKENS_MAX {
                        return Err(A::Error::invalid_length(TOKENS_MAX + 1, &self));
                    }
                    ids.push(entry);
                }
                Ok(Vocabulary::Ids(ids))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                List::deserialize(SeqAccessDeserializer::new(seq)).map(Vocabulary::Scores)
            }
        }
        deserializer.deserialize_any(Entries)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Merge<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts;
        impl<'de> Visitor<'de> for Parts {
            type Value = Merge<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "two parts, as one of {MERGES_MAX} merges at most")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Merge::Joined(Text(Cow::Borrowed(text))))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Merge::Joined(Text(Cow::Owned(text.to_owned()))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                let (left, right) = Deserialize::deserialize(SeqAccessDeserializer::new(seq))?;
                Ok(Merge::Pair(left, right))
            }
        }
        deserializer.deserialize_any(Parts)
    }
}
