//! Functions that classify texts.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::guard::{TablaStatus, guard};
use super::handles::resolve;
use super::options::classify::TablaClassifyOptions;
use super::pointers::{FloatBuffer, copy_out, out_of, read_sized, slice_of, texts_of};
use super::sequence::{TablaModel, TablaSession, with_session};
use std::ffi::c_char;
use tabla::embed::{ClassifyInput, ClassifyOptions};
use tabla::error::bail;
use tabla::{Error, ErrorKind};

/// Writes the scores of the labels for each text, `[texts, labels]`, for encoders with a classification
/// head. `TablaModelInfo.labels` is the number of labels, and `tabla_model_label` returns their names.
/// The activation function is that of the model's files; otherwise it is sigmoid for one label, and
/// softmax for several. If `pairs` is not NULL, it has a second text for each text, and the model reads
/// each pair together; a cross-encoder takes the query as text and the document as second text. The
/// sequence does not change. `capacity` and `count` are numbers of floats. If `out` is NULL, only
/// `count` is written. NULL options are the defaults.
///
/// # Safety
///
/// `texts` points to `texts_count` C strings, and so does `pairs` unless it is NULL; `options` is NULL or
/// points to a struct with `struct_size` set; `out` is NULL or points to space for `capacity` floats;
/// `count` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_session_classify(
    session: *mut TablaSession,
    texts: *const *const c_char,
    pairs: *const *const c_char,
    texts_count: usize,
    options: *const TablaClassifyOptions,
    out: *mut f32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let texts = unsafe { slice_of(texts, texts_count, "texts") }?;
        let seconds = match pairs.is_null() {
            true => None,
            // SAFETY: guaranteed by the caller.
            false => Some(unsafe { slice_of(pairs, texts_count, "pairs") }?),
        };
        // SAFETY: guaranteed by the caller.
        let options = unsafe { read_sized(options, TablaClassifyOptions::DEFAULT) }?;
        let classify_options = ClassifyOptions::default()
            .logits(options.logits != 0)
            .truncate(options.truncate != 0);
        let floats = FloatBuffer::new(out, capacity, count);
        with_session(session, |session| {
            let labels = session.classifier()?.labels.len();
            let needed = texts.len().checked_mul(labels).ok_or_else(|| {
                let message = format_args!("too many texts: {}", texts.len());
                Error::new(ErrorKind::TooLarge, message)
            })?;
            let fill = |buffer: &mut [f32]| {
                // SAFETY: guaranteed by the caller.
                let texts = unsafe { texts_of(texts, "texts") }?;
                let seconds = match seconds {
                    // SAFETY: guaranteed by the caller.
                    Some(seconds) => Some(unsafe { texts_of(seconds, "pairs") }?),
                    None => None,
                };
                let inputs = texts.iter().enumerate().map(|(at, text)| match &seconds {
                    Some(seconds) => ClassifyInput::Pair(text, seconds[at]),
                    None => ClassifyInput::Text(text),
                });
                let inputs: Vec<_> = inputs.collect();
                let scores = session.classify(&inputs, &classify_options, &mut |_, _| {})?;
                buffer.copy_from_slice(&scores);
                Ok(())
            };
            // SAFETY: guaranteed by the caller.
            unsafe { floats.write(needed, fill) }
        })
    })
}

/// Writes the name of a label of a model with a classification head, in UTF-8. No NUL is added. If
/// `text` is NULL, only `count` is written, the number of bytes.
///
/// # Safety
///
/// `text` is NULL or points to space for `capacity` bytes; `count` points to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_model_label(
    model: *const TablaModel,
    label: u32,
    text: *mut c_char,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let count = unsafe { out_of(count, "count") }?;
        let model = resolve(model)?;
        let labels = model.model().classifier().map_or(&[][..], |c| &c.labels);
        let Some(name) = labels.get(label as usize) else {
            bail!(
                Argument,
                "label {label} is out of range: the model has {} labels",
                labels.len()
            );
        };
        // SAFETY: guaranteed by the caller.
        unsafe { copy_out(name.as_bytes(), text.cast(), capacity) }?;
        *count = name.len();
        Ok(())
    })
}
