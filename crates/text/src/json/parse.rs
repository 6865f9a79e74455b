//! Deserialization of the large parts of `tokenizer.json`: borrowed strings and bounded lists.

use crate::pieces::TOKENS_MAX;
use serde::Deserialize;
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// Maximum number of merges. Gemma 3 has 514,906.
pub(super) const MERGES_MAX: usize = 4 << 20;

/// A string that is borrowed from the file unless it has escapes.
#[derive(Debug)]
pub(super) struct JsonStr<'a>(pub(super) Cow<'a, str>);

/// A list of at most `MAX` entries.
#[derive(Debug)]
pub(crate) struct BoundedVec<T, const MAX: usize>(pub(crate) Vec<T>);

/// Tokens with ids, or tokens with scores in the order of ids.
#[derive(Debug)]
pub(super) enum Vocabulary<'a> {
    Ids(Vec<(JsonStr<'a>, u32)>),
    Scores(BoundedVec<(JsonStr<'a>, f64), TOKENS_MAX>),
}

/// A merge: two parts, or in older files one string with a space between the parts.
#[derive(Debug)]
pub(super) enum Merge<'a> {
    Pair(JsonStr<'a>, JsonStr<'a>),
    Joined(JsonStr<'a>),
}

impl<T, const MAX: usize> Default for BoundedVec<T, MAX> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for JsonStr<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StrVisitor;
        impl<'de> Visitor<'de> for StrVisitor {
            type Value = JsonStr<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(JsonStr(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(JsonStr(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(StrVisitor)
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for BoundedVec<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T, const MAX: usize>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for ListVisitor<T, MAX> {
            type Value = BoundedVec<T, MAX>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MAX} entries")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = seq.next_element()? {
                    if entries.len() == MAX {
                        return Err(A::Error::invalid_length(MAX + 1, &self));
                    }
                    entries.push(entry);
                }
                Ok(BoundedVec(entries))
            }
        }
        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Vocabulary<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VocabularyVisitor;
        impl<'de> Visitor<'de> for VocabularyVisitor {
            type Value = Vocabulary<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {TOKENS_MAX} tokens with ids or scores")
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
                BoundedVec::deserialize(SeqAccessDeserializer::new(seq)).map(Vocabulary::Scores)
            }
        }
        deserializer.deserialize_any(VocabularyVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Merge<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MergeVisitor;
        impl<'de> Visitor<'de> for MergeVisitor {
            type Value = Merge<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a merge of two parts, at most {MERGES_MAX} merges")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Merge::Joined(JsonStr(Cow::Borrowed(text))))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Merge::Joined(JsonStr(Cow::Owned(text.to_owned()))))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
                let (left, right) = Deserialize::deserialize(SeqAccessDeserializer::new(seq))?;
                Ok(Merge::Pair(left, right))
            }
        }
        deserializer.deserialize_any(MergeVisitor)
    }
}
