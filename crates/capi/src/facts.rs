//! Information about the library, a model, its dispatch tables and the devices of the machine.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::answer_piece::TABLA_NO_TOKEN;
use super::guard::{TablaStatus, guard, prepare_process};
use super::handles::resolve;
use super::pointers::{Choice, choose, copy_out, out_of, size_of_struct, text_of, write_sized};
use super::sequence::TablaModel;
use serde_json::Value;
use std::ffi::{CStr, c_char};
use std::mem::offset_of;
use std::ops::Range;
use tabla::Model;
use tabla::error::bail;
use tabla::load::devices;
use tabla::op::table::Table;

/// Version of this ABI. It increases when programs must be recompiled.
pub const TABLA_ABI_VERSION: u32 = 1;

/// Text format of `tabla_model_table`, one line for each command.
pub const TABLA_TABLE_TEXT: i32 = 0;
/// JSON format of `tabla_model_table`: an array with one object for each command.
pub const TABLA_TABLE_JSON: i32 = 1;

/// Properties of a model. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaModelInfo {
    /// `sizeof(TablaModelInfo)`.
    pub struct_size: u32,
    /// Number of layers.
    pub layers: u32,
    /// Hidden size (width of the residual stream).
    pub dim: u32,
    /// Number of attention heads (query heads).
    pub heads: u32,
    /// Number of key and value heads.
    pub kv_heads: u32,
    /// Size of an attention head.
    pub head_dim: u32,
    /// Size of the feed-forward layer.
    pub ffn: u32,
    /// Vocabulary size in tokens: the length of a row of logits.
    pub vocab: u32,
    /// Context length of the KV cache, in tokens.
    pub context: u32,
    /// Context length that the model was trained with, in tokens.
    pub context_trained: u32,
    /// Number of parameters: elements of all tensors.
    pub parameters: u64,
    /// Size of the model file or files, in bytes.
    pub file_bytes: u64,
    /// Size of the KV cache, in bytes.
    pub cache_bytes: u64,
    /// Size of the scratch buffers, in bytes.
    pub scratch_bytes: u64,
    /// Name of the architecture in the file, truncated if too long, NUL-terminated.
    pub architecture: [c_char; 32],
    /// Name of the device, truncated if too long, NUL-terminated.
    pub device: [c_char; 96],
    /// Beginning-of-sequence token, or `TABLA_NO_TOKEN`.
    pub bos_token: u32,
    /// End-of-sequence token, or `TABLA_NO_TOKEN`. `tabla_model_stop_token_ids` returns all tokens
    /// that end an answer.
    pub eos_token: u32,
    /// Number of dimensions of an embedding; 0 if embeddings were not enabled when the model was
    /// loaded.
    pub embedding_dim: u32,
    /// Maximum length of a text to embed or to classify, in tokens.
    pub embedding_max_tokens: u32,
    /// Not 0: the model is an encoder, which only computes embeddings or classifies texts.
    pub is_encoder: u32,
    /// Maximum number of sequences that are computed at the same time.
    pub sequences: u32,
    /// Number of labels of the classification head; 0 if the model has none.
    pub labels: u32,
    /// 0.
    pub reserved: u32,
}

/// Returns the version of the library, for example `0.1.0`.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Returns the ABI version of the library, to compare with `TABLA_ABI_VERSION` of the header.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_abi_version() -> u32 {
    TABLA_ABI_VERSION
}

/// Writes properties of a model: `struct_size` bytes. Fields that this library does not support
/// become 0.
///
/// # Safety
///
/// `info` points to a struct with `struct_size` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_model_info(
    model: *const TablaModel,
    info: *mut TablaModelInfo,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let size = unsafe { size_of_struct(info, "info") }?;
        if TablaModelInfo::TEXTS
            .iter()
            .any(|text| text.contains(&size))
        {
            bail!(
                Argument,
                "invalid struct_size {size}: set it to the sizeof of the struct"
            );
        }
        let facts = TablaModelInfo::of(resolve(model)?.model());
        // SAFETY: the caller's struct has `size` bytes.
        unsafe { write_sized(&facts, info, size) };
        Ok(())
    })
}

/// Writes a 32-byte digest that identifies the model files: of the architecture, its parameters and
/// the tensors (large tensors are sampled). It does not depend on the device or the load options.
///
/// # Safety
///
/// `digest` points to 32 bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_model_digest(
    model: *const TablaModel,
    digest: *mut u8,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let out = unsafe { out_of(digest.cast::<[u8; 32]>(), "digest") }?;
        *out = resolve(model)?.model().digest()?;
        Ok(())
    })
}

/// Writes a dispatch table of a model, the list of commands that the device replays. `name` is
/// `step`, `batch`, `embed` or `classify`; NULL: the first table. If several tables have the name, the
/// smallest one for at least `tokens` tokens is used. `format` is `TABLA_TABLE_TEXT` or `TABLA_TABLE_JSON`.
/// No NUL is added. If `text` is NULL, only `count` is written.
///
/// # Safety
///
/// `name` is NULL or a C string; `text` is NULL or points to space for `capacity` bytes; `count`
/// points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_model_table(
    model: *const TablaModel,
    name: *const c_char,
    tokens: u32,
    format: i32,
    text: *mut c_char,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let count = unsafe { out_of(count, "count") }?;
        // SAFETY: guaranteed by the caller.
        let name = unsafe { text_of(name, "name") }?;
        let write = choose("format", format, &FORMATS)?;
        let model = resolve(model)?;
        let mut tables = model.model().tables().iter();
        let fits = |t: &&Table| (name.is_empty() || t.name == name) && t.tokens >= tokens;
        let Some(table) = tables.find(fits) else {
            let tables = model.model().tables().iter();
            let listed: Vec<_> = tables
                .map(|t| format!("{} for {} tokens", t.name, t.tokens))
                .collect();
            bail!(
                Argument,
                "no table {name:?} for {tokens} tokens; available tables: {}",
                listed.join(", ")
            );
        };
        let written = write(table);
        // SAFETY: guaranteed by the caller.
        unsafe { copy_out(written.as_bytes(), text.cast(), capacity) }?;
        *count = written.len();
        Ok(())
    })
}

/// Formats a table.
type FormatTable = fn(&Table) -> String;

const FORMATS: [Choice<FormatTable>; 2] = [
    (TABLA_TABLE_TEXT, "text", |table| table.to_string()),
    (TABLA_TABLE_JSON, "JSON", |table| {
        table.commands_json().collect::<Value>().to_string()
    }),
];

/// Writes the devices of this machine as a JSON object: `cpu`, and `gpus` in the order of their
/// numbers for `TablaLoadOptions.adapter`. No NUL is added. If `text` is NULL, only `count` is
/// written.
///
/// # Safety
///
/// `text` is NULL or points to space for `capacity` bytes; `count` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_device_list(
    text: *mut c_char,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        prepare_process();
        // SAFETY: guaranteed by the caller.
        let count = unsafe { out_of(count, "count") }?;
        let written = devices()?.json().to_string();
        // SAFETY: guaranteed by the caller.
        unsafe { copy_out(written.as_bytes(), text.cast(), capacity) }?;
        *count = written.len();
        Ok(())
    })
}

/// Makes truncated model files errors: a call that reads a page of a mapped file that is no longer there fails with
/// `TABLA_ERROR_IO`, and so do later calls with that model, instead of the process being ended by `SIGBUS`. Without it,
/// a model file must not be truncated while it is used, unless it was loaded with `TABLA_LOAD_READ`.
///
/// Installs a handler of `SIGBUS` for the whole process, which passes other faults on to the handler that was
/// installed before. A handler that is installed afterwards must do the same. Where the system has no such signal,
/// the result is `TABLA_ERROR_UNSUPPORTED`.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_catch_file_faults() -> TablaStatus {
    guard(tabla::format::catch_file_faults)
}

impl TablaModelInfo {
    /// A struct that ends in one of these has no room for the NUL at the end of the text.
    const TEXTS: [Range<usize>; 2] = [
        offset_of!(Self, architecture) + 1..offset_of!(Self, device),
        offset_of!(Self, device) + 1..offset_of!(Self, bos_token),
    ];

    fn of(model: &Model) -> Self {
        let facts = model.facts();
        let tokenizer = model.tokenizer();
        let labels = model.classifier().map_or(0, |head| head.labels.len());
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
            embedding_dim: u32::try_from(model.embedding_dim()).unwrap_or(u32::MAX),
            embedding_max_tokens: model.embedding_max_tokens(),
            is_encoder: u32::from(model.is_encoder()),
            sequences: facts.sequences,
            labels: u32::try_from(labels).unwrap_or(u32::MAX),
            reserved: 0,
        }
    }
}

/// Copies a string to a fixed-size array, truncated to fit with a NUL.
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
