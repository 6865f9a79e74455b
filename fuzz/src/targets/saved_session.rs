//! Saved sessions with edits and a correct checksum.

use super::choices::Choices;
use super::edits::edit;
use super::errors::accepted;
use super::folder::Folder;
use super::models::{computes, llama};
use std::sync::OnceLock;
use tabla::Session;

/// Bytes of the checksum at the end.
const CHECKSUM: usize = 32;
/// Bytes that each hash in the checksum is of.
const BLOCK: usize = 1 << 20;
/// Bytes of the header that are edited: up to the tokens.
const HEADER: usize = 1024;

/// A file without its checksum.
fn saved() -> &'static [u8] {
    static SAVED: OnceLock<Vec<u8>> = OnceLock::new();
    SAVED.get_or_init(|| {
        let folder = Folder::new();
        let path = folder.path().join("session");
        let mut session = Session::new(llama().clone());
        session.prefill(&[1, 5, 9, 4, 7]).expect("a prompt");
        session.save(&path).expect("the file is writable");
        let mut bytes = std::fs::read(&path).expect("a file");
        bytes.truncate(bytes.len() - CHECKSUM);
        bytes
    })
}

pub(crate) fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let mut bytes = saved().to_vec();
    let places = match choices.below(3) {
        0 => 0..HEADER.min(bytes.len()),
        1 => bytes.len() - 16..bytes.len(),
        _ => 0..bytes.len(),
    };
    edit(&mut bytes, places, &mut choices);
    let mut sum = blake3::Hasher::new();
    for block in bytes.chunks(BLOCK) {
        sum.update(blake3::hash(block).as_bytes());
    }
    bytes.extend(sum.finalize().as_bytes());
    let folder = Folder::new();
    let path = folder.write("session", &bytes);
    if let Some(mut session) = accepted(bytes.len(), || Session::load(llama().clone(), &path)) {
        let vocab = session.facts().vocab;
        assert!(
            session.tokens().iter().all(|token| *token < vocab),
            "{:?}",
            session.tokens()
        );
        computes(&mut session);
    }
}
