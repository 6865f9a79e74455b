//! Functions that compute embeddings.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::guard::{TablaStatus, guard};
use super::handles::resolve;
use super::options::embed::{POOLING, TablaEmbedOptions};
use super::pointers::{FloatBuffer, choose, read_sized, slice_of, text_of, texts_of};
use super::sequence::{TablaModel, TablaSession, with_session};
use std::ffi::c_char;
use tabla::embed::EmbedOptions;
use tabla::error::bail;
use tabla::{Error, ErrorKind, Result};

/// Writes the embeddings of texts, `[texts, dimensions]`. A model that generates text must be
/// loaded with `TablaLoadOptions.embeddings`. The sequence does not change. `capacity` and `count`
/// are numbers of floats. If `out` is NULL, only `count` is written. NULL options are the defaults.
///
/// # Safety
///
/// `texts` points to `texts_count` C strings; `options` is NULL or points to a struct with
/// `struct_size` set; `out` is NULL or points to space for `capacity` floats; `count` points to a
/// `size_t`.
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
        // SAFETY: guaranteed by the caller.
        let texts = unsafe { slice_of(texts, texts_count, "texts") }?;
        let floats = FloatBuffer::new(out, capacity, count);
        // SAFETY: guaranteed by the caller.
        unsafe { embed(session, texts, options, floats) }
    })
}

/// Writes the embeddings of texts with the default session of a model: the short form of
/// `tabla_session_embed`.
///
/// # Safety
///
/// Arguments as for `tabla_session_embed`.
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
        // SAFETY: guaranteed by the caller.
        let texts = unsafe { slice_of(texts, texts_count, "texts") }?;
        let floats = FloatBuffer::new(out, capacity, count);
        let session = resolve(model)?.session();
        // SAFETY: guaranteed by the caller.
        unsafe { embed(session, texts, options, floats) }
    })
}

/// Writes embeddings.
///
/// # Safety
///
/// Arguments as for `tabla_session_embed`.
unsafe fn embed(
    session: *const TablaSession,
    texts: &[*const c_char],
    options: *const TablaEmbedOptions,
    out: FloatBuffer,
) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let options = unsafe { read_sized(options, TablaEmbedOptions::DEFAULT) }?;
    if options.reserved != 0 {
        bail!(
            Argument,
            "expected reserved to be 0, got {}",
            options.reserved
        );
    }
    let prompt_name = if options.prompt_name.is_null() {
        None
    } else {
        // SAFETY: guaranteed by the caller.
        Some(unsafe { text_of(options.prompt_name, "prompt_name") }?)
    };
    let embed_options = EmbedOptions::default()
        .pooling(choose("pooling", options.pooling, &POOLING)?)
        .dimensions(options.dimensions)
        .normalize((options.normalize != 0).then_some(options.normalize > 0))
        .prompt_name(prompt_name)
        .truncate(options.truncate != 0);
    with_session(session, |session| {
        let dim = session.embedding_dim(&embed_options)?;
        let needed = texts.len().checked_mul(dim).ok_or_else(|| {
            let message = format_args!("too many texts: {}", texts.len());
            Error::new(ErrorKind::TooLarge, message)
        })?;
        let fill = |buffer: &mut [f32]| {
            // SAFETY: guaranteed by the caller.
            let texts = unsafe { texts_of(texts, "texts") }?;
            session.embed(&texts, &embed_options, buffer, &mut |_, _| {})
        };
        // SAFETY: guaranteed by the caller.
        unsafe { out.write(needed, fill) }
    })
}
