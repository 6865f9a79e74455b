//! The function of a model's embeddings.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::guard::{TablaStatus, guard};
use super::pointers::{Choice, Floats, choose, read_sized, slice_of, text_of, texts_of};
use super::sequence::{Sequenced, TablaModel, TablaSession, with};
use std::ffi::c_char;
use tabla::EmbedOptions;
use tabla::Pooling;
use tabla::error::{Error, ErrorKind, Result, bail};

/// What the model's files say: `TablaEmbedOptions.pooling`.
pub const TABLA_POOLING_MODEL: i32 = 0;
/// The mean of a text's rows.
pub const TABLA_POOLING_MEAN: i32 = 1;
/// Its first row.
pub const TABLA_POOLING_CLS: i32 = 2;
/// Its last row.
pub const TABLA_POOLING_LAST: i32 = 3;
/// The largest number of each column.
pub const TABLA_POOLING_MAX: i32 = 4;

/// How texts become embeddings. Zeros are the defaults.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaEmbedOptions {
    /// `sizeof(TablaEmbedOptions)`.
    pub struct_size: u32,
    /// `TABLA_POOLING_MODEL`, ...
    pub pooling: i32,
    /// Only the first so many numbers, for models that were trained for it (Matryoshka); 0: all.
    pub dimensions: u32,
    /// Over 0: embeddings get the length 1. Under 0: they stay as long as they are. 0: what the
    /// model's files say, and length 1 where they say nothing.
    pub normalize: i32,
    /// Not 0: texts that are too long are cut. 0: they are `TABLA_ERROR_TOO_LARGE`.
    pub truncate: u32,
    /// Keep 0.
    pub reserved: u32,
    /// The name of the model's prompt in front of every text, `""` for none; NULL takes its
    /// default, if it has one.
    pub prompt: *const c_char,
}

impl TablaEmbedOptions {
    #[expect(clippy::cast_possible_truncation, reason = "a small struct")]
    const DEFAULT: Self = Self {
        struct_size: size_of::<Self>() as u32,
        pooling: TABLA_POOLING_MODEL,
        dimensions: 0,
        normalize: 0,
        truncate: 0,
        reserved: 0,
        prompt: std::ptr::null(),
    };
}

const POOLINGS: [Choice<Option<Pooling>>; 5] = [
    (TABLA_POOLING_MODEL, "model", None),
    (TABLA_POOLING_MEAN, "mean", Some(Pooling::Mean)),
    (TABLA_POOLING_CLS, "cls", Some(Pooling::Cls)),
    (TABLA_POOLING_LAST, "last", Some(Pooling::Last)),
    (TABLA_POOLING_MAX, "max", Some(Pooling::Max)),
];

/// Writes the embeddings of texts, `[texts, dimensions]`. A model that generates text must have
/// been loaded with `TablaLoadOptions.embeddings`; its sequence stays as it is. `capacity` and
/// `count` are numbers of floats. With `out` NULL only `count` is written. NULL options are the
/// defaults.
///
/// # Safety
///
/// `texts` points to `texts_count` C strings; `options` is NULL or points to a struct that begins
/// with its size; `out` is NULL or points to room for `capacity` floats; `count` points to a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_embed(
    model: *mut TablaModel,
    texts: *const *const c_char,
    texts_count: usize,
    options: *const TablaEmbedOptions,
    out: *mut f32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let texts = unsafe { slice_of(texts, texts_count, "texts") }?;
        let floats = Floats::new(out, capacity, count);
        // SAFETY: the caller's promise.
        unsafe { embed(model, texts, options, floats) }
    })
}

/// `tabla_embed` of a session, whose sequence stays as it is.
///
/// # Safety
///
/// As of `tabla_embed`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_embed(
    session: *mut TablaSession,
    texts: *const *const c_char,
    texts_count: usize,
    options: *const TablaEmbedOptions,
    out: *mut f32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let texts = unsafe { slice_of(texts, texts_count, "texts") }?;
        let floats = Floats::new(out, capacity, count);
        // SAFETY: the caller's promise.
        unsafe { embed(session, texts, options, floats) }
    })
}

/// Writes embeddings.
///
/// # Safety
///
/// As of `tabla_embed`.
unsafe fn embed<H: Sequenced>(
    handle: *const H,
    texts: &[*const c_char],
    options: *const TablaEmbedOptions,
    out: Floats,
) -> Result<()> {
    // SAFETY: the caller's promise.
    let options = unsafe { read_sized(options, TablaEmbedOptions::DEFAULT) }?;
    if options.reserved != 0 {
        bail!(Argument, "reserved is {}, not 0", options.reserved);
    }
    let prompt = if options.prompt.is_null() {
        None
    } else {
        // SAFETY: the caller's promise.
        Some(unsafe { text_of(options.prompt, "prompt") }?)
    };
    let how = EmbedOptions {
        pooling: choose("pooling", options.pooling, &POOLINGS)?,
        dimensions: options.dimensions,
        normalize: (options.normalize != 0).then_some(options.normalize > 0),
        prompt,
        truncate: options.truncate != 0,
    };
    with(handle, |session| {
        let dim = session.embedding_dim(&how)?;
        let needed = texts.len().checked_mul(dim).ok_or_else(|| {
            let message = format_args!("{} texts are too many", texts.len());
            Error::new(ErrorKind::TooLarge, message)
        })?;
        let fill = |room: &mut [f32]| {
            // SAFETY: the caller's promise.
            let texts = unsafe { texts_of(texts, "texts") }?;
            session.embed(&texts, &how, room, &mut |_, _| {})
        };
        // SAFETY: the caller's promise.
        unsafe { out.write(needed, fill) }
    })
}
