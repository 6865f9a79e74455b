//! What there is to know: of the library, of a model, of its tables, of the machine.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::answer_piece::TABLA_NO_TOKEN;
use super::guard::{TablaStatus, guard, prepare_process};
use super::handles::resolve;
use super::pointers::{Choice, choose, copy_out, out_of, size_of_struct, text_of, write_sized};
use super::sequence::TablaModel;
use serde_json::Value;
use std::ffi::{CStr, c_char};
use tabla::Model;
use tabla::TableId;
use tabla::devices;
use tabla::error::bail;
use tabla::op::table::Table;

/// Version of this ABI: it changes when a program must be compiled again.
pub const TABLA_ABI_VERSION: u32 = 1;

/// Lines for people, one for each command: `tabla_table`.
pub const TABLA_TABLE_TEXT: i32 = 0;
/// A JSON array with an object for each command.
pub const TABLA_TABLE_JSON: i32 = 1;

/// Facts about a model. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaModelInfo {
    /// `sizeof(TablaModelInfo)`.
    pub struct_size: u32,
    /// Layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub dim: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads.
    pub kv_heads: u32,
    /// Elements of a head.
    pub head_dim: u32,
    /// Width of the feed-forward layer.
    pub ffn: u32,
    /// Tokens of the vocabulary: the length of a row of logits.
    pub vocab: u32,
    /// Positions that fit the KV cache.
    pub context: u32,
    /// Positions that the model was trained for.
    pub context_trained: u32,
    /// Elements of all tensors.
    pub parameters: u64,
    /// Bytes of the file or files.
    pub file_bytes: u64,
    /// Bytes of the KV cache.
    pub cache_bytes: u64,
    /// Bytes of working memory.
    pub scratch_bytes: u64,
    /// Architecture as the file names it, cut to fit, NUL at the end.
    pub architecture: [c_char; 32],
    /// The device, in words, cut to fit, NUL at the end.
    pub device: [c_char; 96],
    /// The token that begins texts, or `TABLA_NO_TOKEN`.
    pub bos_token: u32,
    /// The token that ends texts, or `TABLA_NO_TOKEN`. `tabla_stop_tokens` has all that end an answer.
    pub eos_token: u32,
    /// Numbers of an embedding; 0 for a model that was loaded to yield none.
    pub embedding_dim: u32,
    /// Tokens of a text that becomes an embedding, at most.
    pub embedding_length: u32,
    /// Not 0: it yields embeddings alone.
    pub is_encoder: u32,
    /// Sequences that go on together.
    pub sequences: u32,
}

/// The version of the library, for example `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// The version of this ABI: compare it with `TABLA_ABI_VERSION` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_abi_version() -> u32 {
    TABLA_ABI_VERSION
}

/// Writes facts about a model: as many bytes as `struct_size` says. What this library does not
/// know yet becomes 0.
///
/// # Safety
///
/// `info` points to a struct that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_model_info(
    model: *const TablaModel,
    info: *mut TablaModelInfo,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let size = unsafe { size_of_struct(info, "info") }?;
        let facts = TablaModelInfo::of(resolve(model)?.model());
        // SAFETY: the caller's struct holds `size` bytes.
        unsafe { write_sized(&facts, info, size) };
        Ok(())
    })
}

/// Writes what tells a model's files from those of other models, 32 bytes: a digest of the architecture
/// and its numbers, and of the tensors, of large ones of samples. Device and options are no part of it.
///
/// # Safety
///
/// `digest` points to room for 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_digest(model: *const TablaModel, digest: *mut u8) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { out_of(digest.cast::<[u8; 32]>(), "digest") }?;
        *out = resolve(model)?.model().digest()?;
        Ok(())
    })
}

/// Writes a table of a model, as the device replays it. `name` is `step`, `batch` or `embed`, NULL for
/// the first one; of several of one name it is the narrowest through which `tokens` tokens go at once.
/// `format` is `TABLA_TABLE_TEXT` or `_JSON`. No NUL is added. With `text` NULL only `count` is written.
///
/// # Safety
///
/// `name` is NULL or a C string; `text` is NULL or points to room for `capacity` bytes; `count` points to
/// a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_table(
    model: *const TablaModel,
    name: *const c_char,
    tokens: u32,
    format: i32,
    text: *mut c_char,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let count = unsafe { out_of(count, "count") }?;
        // SAFETY: the caller's promise.
        let name = unsafe { text_of(name, "name") }?;
        let write = choose("format", format, &FORMATS)?;
        let model = resolve(model)?;
        let mut tables = model.model().tables().iter();
        let fits = |t: &&Table| (name.is_empty() || t.name == name) && t.tokens >= tokens;
        let Some(table) = tables.find(fits) else {
            let tables = model.model().tables().iter();
            let listed: Vec<_> = tables
                .map(|t| format!("{} of {}", t.name, t.tokens))
                .collect();
            bail!(
                Argument,
                "no table {name:?} for {tokens} tokens at once; the model has {}",
                listed.join(", ")
            );
        };
        let written = write(table);
        // SAFETY: the caller's promise.
        unsafe { copy_out(written.as_bytes(), text.cast(), capacity) }?;
        *count = written.len();
        Ok(())
    })
}

/// How a table becomes text.
type Write = fn(&Table) -> String;

const FORMATS: [Choice<Write>; 2] = [
    (TABLA_TABLE_TEXT, "text", |table| table.to_string()),
    (TABLA_TABLE_JSON, "JSON", |table| {
        table.commands_json().collect::<Value>().to_string()
    }),
];

/// Writes what tables can run on here, as a JSON object: `cpu`, and `gpus` in the order of their numbers,
/// by which `TablaLoadOptions.adapter` takes them. No NUL is added. With `text` NULL only `count` is
/// written.
///
/// # Safety
///
/// `text` is NULL or points to room for `capacity` bytes; `count` points to a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_devices(
    text: *mut c_char,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        prepare_process();
        // SAFETY: the caller's promise.
        let count = unsafe { out_of(count, "count") }?;
        let written = devices()?.json().to_string();
        // SAFETY: the caller's promise.
        unsafe { copy_out(written.as_bytes(), text.cast(), capacity) }?;
        *count = written.len();
        Ok(())
    })
}

impl TablaModelInfo {
    fn of(model: &Model) -> Self {
        let facts = model.facts();
        let tokenizer = model.tokenizer();
        let embeds = model.table(TableId::Embed).is_some();
        Self {
            struct_size: 0,
            layers: facts.layers,
            dim: facts.dim,
            heads: facts.heads,
            kv_heads: facts.kv_heads,
            head_dim: facts.head_dim,
            ffn: facts.ffn,
            vocab: facts.vocab,
            context: facts.context,
            context_trained: facts.context_trained,
            parameters: facts.parameters,
            file_bytes: facts.file_bytes,
            cache_bytes: facts.cache_bytes,
            scratch_bytes: facts.scratch_bytes,
            architecture: fixed(&facts.architecture),
            device: fixed(&facts.device),
            bos_token: tokenizer.bos().unwrap_or(TABLA_NO_TOKEN),
            eos_token: tokenizer.eos().unwrap_or(TABLA_NO_TOKEN),
            embedding_dim: if embeds { facts.dim } else { 0 },
            embedding_length: model.embedding_length(),
            is_encoder: u32::from(model.is_encoder()),
            sequences: facts.sequences,
        }
    }
}

/// A text in an array, cut to fit with room for a NUL.
fn fixed<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    let mut end = text.len().min(N - 1);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    for (to, from) in out.iter_mut().zip(&text.as_bytes()[..end]) {
        *to = from.cast_signed() as c_char;
    }
    out
}
