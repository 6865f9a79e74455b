//! Functions that transcribe speech.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::exclusive::Exclusive;
use super::guard::{TablaStatus, guard, guard_value};
use super::handles::{self, HandleType, resolve};
use super::options::transcribe::TablaTranscribeOptions;
use super::pointers::{copy_out, out_of, path_of, size_of_struct, slice_of, text_of, write_sized};
use super::recording::{Encoded, Recording};
use super::segment::{SegmentBuffer, TablaSegment, TablaSegmentCallback};
use super::sequence::{TablaModel, with_session};
use super::transcribe_options::options_of;
use std::ffi::{CString, c_char, c_void};
use std::sync::OnceLock;
use tabla::error::bail;
use tabla::speech::{Format, Header, LANGUAGES, Language, Segment, Transcript, WordTimes};
use tabla::{Cancel, Error, ErrorKind, Result, Transcription};

/// A transcription that is read segment by segment. Opaque.
pub struct TablaTranscription {
    state: Exclusive<TranscriptionState>,
    cancel: Cancel,
}

struct TranscriptionState {
    recording: Recording,
    words: WordTimes,
    /// Memory that the last segment points to.
    buffer: SegmentBuffer,
    /// Segments that were returned.
    segments: Vec<Segment>,
}

impl HandleType for TablaTranscription {
    const NAME: &'static str = "transcription";

    fn close(&self) {
        self.cancel.close();
    }
}

/// State of a transcription. Set `struct_size` before the call.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaTranscriptionInfo {
    /// `sizeof(TablaTranscriptionInfo)`.
    pub struct_size: u32,
    /// Number of segments that were returned.
    pub segments: u32,
    /// Duration of the audio so far in seconds.
    pub duration: f64,
    /// Position up to which the audio is transcribed, in seconds.
    pub position: f64,
    /// Code of the language, such as `de`; `""` before it is detected. Valid as long as the library
    /// is loaded.
    pub language: *const c_char,
    /// English name of the language, such as `german`; `""` before it is detected.
    pub language_name: *const c_char,
}

/// Audio of a short form.
enum Input<'a> {
    Samples(&'a [f32]),
    Encoded(Encoded),
}

/// Transcribes samples from -1 to 1, at the rate and with the channels of the options, and passes
/// the segments to a callback. `count` is the number of floats. NULL options are the defaults.
/// The call uses the default session of the model: `tabla_session_cancel` cancels it.
///
/// # Safety
///
/// `samples` points to `count` floats; `options` is NULL or points to a struct with `struct_size`
/// set, whose pointers are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_transcribe(
    model: *mut TablaModel,
    samples: *const f32,
    count: usize,
    options: *const TablaTranscribeOptions,
    callback: TablaSegmentCallback,
    user_data: *mut c_void,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let samples = unsafe { slice_of(samples, count, "samples") }?;
        let caller = Caller {
            callback,
            user_data,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { transcribe(model, Input::Samples(samples), options, caller) }
    })
}

/// Transcribes an audio file and passes the segments to a callback, as `tabla_transcribe` does. The
/// format is detected from the content: WAV, MP3, FLAC, Ogg, MP4, M4A, Matroska or AAC.
///
/// # Safety
///
/// `path` is a C string; `options` is NULL or points to a struct with `struct_size` set, whose
/// pointers are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_transcribe_file(
    model: *mut TablaModel,
    path: *const c_char,
    options: *const TablaTranscribeOptions,
    callback: TablaSegmentCallback,
    user_data: *mut c_void,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let input = Input::Encoded(unsafe { file_of(path) }?);
        let caller = Caller {
            callback,
            user_data,
        };
        // SAFETY: guaranteed by the caller.
        unsafe { transcribe(model, input, options, caller) }
    })
}

/// The caller's segment callback.
#[derive(Clone, Copy)]
struct Caller {
    callback: TablaSegmentCallback,
    user_data: *mut c_void,
}

/// Transcribes a recording and passes the segments to a callback.
///
/// # Safety
///
/// Arguments as for `tabla_transcribe`.
unsafe fn transcribe(
    model: *const TablaModel,
    input: Input<'_>,
    options: *const TablaTranscribeOptions,
    caller: Caller,
) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    let c_options = unsafe { options_of(options) }?;
    let Some(callback) = caller.callback else {
        bail!(Argument, "callback is NULL");
    };
    with_session(resolve(model)?.session(), |session| {
        let cancel = session.canceller();
        // SAFETY: guaranteed by the caller.
        let options = unsafe { c_options.options(cancel.clone()) }?;
        let transcription = Transcription::new(session.model(), &options)?;
        let mut recording = match input {
            Input::Samples(samples) => {
                let mut recording = Recording::pushed(transcription, c_options.converter()?);
                recording.push_all(samples, c_options.channels as usize, &cancel)?;
                recording
            }
            Input::Encoded(encoded) => Recording::encoded(transcription, encoded)?,
        };
        let mut buffer = SegmentBuffer::default();
        while let Some(segment) = recording.next_segment()? {
            let segment = buffer.segment(&segment);
            // SAFETY: the caller's function; the segment is valid during the call.
            if unsafe { callback(&raw const segment, caller.user_data) } != 0 {
                break;
            }
        }
        Ok(())
    })
}

/// Creates a transcription of samples that `tabla_transcription_push` passes. Returns NULL on
/// failure; `tabla_last_error` has the reason. NULL options are the defaults. A transcription keeps
/// its model alive.
///
/// # Safety
///
/// `options` is NULL or points to a struct with `struct_size` set, whose pointers are NULL or C
/// strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_transcription_new(
    model: *const TablaModel,
    options: *const TablaTranscribeOptions,
) -> *mut TablaTranscription {
    guard_value(|| {
        // SAFETY: guaranteed by the caller.
        unsafe {
            create(model, options, |transcription, options| {
                Ok(Recording::pushed(transcription, options.converter()?))
            })
        }
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Creates a transcription of an audio file, which `tabla_transcription_next` reads as far as
/// needed; its first call reads a file of more than 30 seconds to the end, for its maximum. Returns
/// NULL on failure; `tabla_last_error` has the reason. NULL options are the defaults.
///
/// # Safety
///
/// `path` is a C string; `options` as for `tabla_transcription_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_transcription_open(
    model: *const TablaModel,
    path: *const c_char,
    options: *const TablaTranscribeOptions,
) -> *mut TablaTranscription {
    guard_value(|| {
        // SAFETY: guaranteed by the caller.
        let file = unsafe { file_of(path) }?;
        // SAFETY: guaranteed by the caller.
        unsafe { create(model, options, |t, _| Recording::encoded(t, file)) }
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Creates a transcription of an audio file in memory, which is copied. Returns NULL on failure;
/// `tabla_last_error` has the reason. NULL options are the defaults.
///
/// # Safety
///
/// `data` points to `data_bytes` bytes; `options` as for `tabla_transcription_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_transcription_open_memory(
    model: *const TablaModel,
    data: *const c_void,
    data_bytes: usize,
    options: *const TablaTranscribeOptions,
) -> *mut TablaTranscription {
    guard_value(|| {
        // SAFETY: guaranteed by the caller.
        let bytes = unsafe { slice_of(data.cast::<u8>(), data_bytes, "data") }?;
        let file = Encoded::Bytes(bytes.into());
        // SAFETY: guaranteed by the caller.
        unsafe { create(model, options, |t, _| Recording::encoded(t, file)) }
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Creates a transcription.
///
/// # Safety
///
/// Arguments as for `tabla_transcription_new`.
unsafe fn create(
    model: *const TablaModel,
    options: *const TablaTranscribeOptions,
    record: impl FnOnce(Transcription, &TablaTranscribeOptions) -> Result<Recording>,
) -> Result<*mut TablaTranscription> {
    let model = resolve(model)?;
    let cancel = Cancel::new();
    // SAFETY: guaranteed by the caller.
    let c_options = unsafe { options_of(options) }?;
    // SAFETY: guaranteed by the caller.
    let options = unsafe { c_options.options(cancel.clone()) }?;
    let transcription = Transcription::new(model.model(), &options)?;
    handles::insert(TablaTranscription {
        state: Exclusive::new(TranscriptionState {
            recording: record(transcription, &c_options)?,
            words: match options.word_timestamps {
                true => WordTimes::On,
                false => WordTimes::Off,
            },
            buffer: SegmentBuffer::default(),
            segments: Vec::new(),
        }),
        cancel,
    })
}

/// Adds samples from -1 to 1, at the rate and with the channels of the options. `count` is the
/// number of floats, a multiple of the channels.
///
/// # Safety
///
/// `samples` points to `count` floats.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_transcription_push(
    transcription: *mut TablaTranscription,
    samples: *const f32,
    count: usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let samples = unsafe { slice_of(samples, count, "samples") }?;
        enter(transcription, |state| state.recording.push(samples))
    })
}

/// Ends the recording: `tabla_transcription_next` then returns the segments of the rest. A recording
/// of a file ends there.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_transcription_finish(
    transcription: *mut TablaTranscription,
) -> TablaStatus {
    guard(|| enter(transcription, |state| state.recording.finish()))
}

/// Returns the next segment, for which the model may transcribe a window of 30 seconds. `found` is
/// 1 if there is one. It is 0 if more samples are needed, or, after `tabla_transcription_finish` or
/// at the end of a file, if there are no more segments; `segment` is not written then. The pointers
/// of the segment are valid until the next call on the transcription.
///
/// # Safety
///
/// `segment` points to a struct with `struct_size` set; `found` points to an `int32_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_transcription_next(
    transcription: *mut TablaTranscription,
    segment: *mut TablaSegment,
    found: *mut i32,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let size = unsafe { size_of_struct(segment, "segment") }?;
        // SAFETY: guaranteed by the caller.
        let found = unsafe { out_of(found, "found") }?;
        let handle = resolve(transcription)?;
        let next = handle.state.enter(TablaTranscription::NAME, |state| {
            let Some(segment) = state.recording.next_segment()? else {
                return Ok(None);
            };
            let next = state.buffer.segment(&segment);
            state.segments.push(segment);
            Ok(Some(next))
        })?;
        if handle.cancel.is_closed() {
            bail!(Cancelled, "the transcription was freed during the call");
        }
        *found = next.is_some().into();
        if let Some(next) = next {
            // SAFETY: the caller's struct has `size` bytes.
            unsafe { write_sized(&next, segment, size) };
        }
        Ok(())
    })
}

/// Writes the state of a transcription: duration, position and language.
///
/// # Safety
///
/// `info` points to a struct with `struct_size` set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_transcription_info(
    transcription: *const TablaTranscription,
    info: *mut TablaTranscriptionInfo,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let size = unsafe { size_of_struct(info, "info") }?;
        let c_info = enter(transcription, |state| {
            let transcription = &state.recording.transcription;
            let [language, language_name] = names_of(transcription.language());
            Ok(TablaTranscriptionInfo {
                struct_size: 0,
                segments: u32::try_from(state.segments.len()).unwrap_or(u32::MAX),
                duration: transcription.duration(),
                position: transcription.position(),
                language,
                language_name,
            })
        })?;
        // SAFETY: the caller's struct has `size` bytes.
        unsafe { write_sized(&c_info, info, size) };
        Ok(())
    })
}

/// Writes the segments that were returned as a text in a format: `text`, `srt`, `vtt`, `tsv`, `lrc`,
/// `json` or `verbose_json`. No NUL is added. If `text` is NULL, only `count` is written.
///
/// # Safety
///
/// `format` is a C string; `text` is NULL or points to space for `capacity` bytes; `count` points to
/// a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_transcription_write(
    transcription: *const TablaTranscription,
    format: *const c_char,
    text: *mut c_char,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: guaranteed by the caller.
        let format = Format::find(unsafe { text_of(format, "format") }?)?;
        // SAFETY: guaranteed by the caller.
        let count = unsafe { out_of(count, "count") }?;
        let written = enter(transcription, |state| Ok(state.write(format)))?;
        // SAFETY: guaranteed by the caller.
        unsafe { copy_out(written.as_bytes(), text.cast(), capacity) }?;
        *count = written.len();
        Ok(())
    })
}

/// Cancels the current call on a transcription, from any thread, or else the next window. The call
/// returns `TABLA_ERROR_CANCELLED`, and the transcription can continue.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_transcription_cancel(
    transcription: *const TablaTranscription,
) -> TablaStatus {
    guard(|| {
        resolve(transcription)?.cancel.cancel();
        Ok(())
    })
}

/// Frees a transcription and returns at once. A running call is cancelled, and stays valid until it
/// returns.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_transcription_free(transcription: *mut TablaTranscription) -> TablaStatus {
    guard(|| handles::remove(transcription))
}

impl TranscriptionState {
    /// Writes the segments that were returned.
    fn write(&self, format: Format) -> String {
        let transcription = &self.recording.transcription;
        let transcript = Transcript {
            header: Header {
                task: transcription.task(),
                language: transcription.language().unwrap_or(&LANGUAGES[0]),
                words: self.words,
            },
            duration: transcription.duration(),
            segments: self.segments.clone(),
        };
        transcript.write(format)
    }
}

/// Runs a call with exclusive access to a transcription.
fn enter<T>(
    handle: *const TablaTranscription,
    call: impl FnOnce(&mut TranscriptionState) -> Result<T>,
) -> Result<T> {
    resolve(handle)?.state.enter(TablaTranscription::NAME, call)
}

/// Converts the path of an audio file; NULL is an error.
///
/// # Safety
///
/// `path` is NULL or a C string.
unsafe fn file_of(path: *const c_char) -> Result<Encoded> {
    // SAFETY: guaranteed by the caller.
    let path = unsafe { path_of(path) };
    let path = path.ok_or_else(|| Error::new(ErrorKind::Argument, "path is NULL"))?;
    Ok(Encoded::Path(path))
}

/// Returns code and English name of a language as C strings; empty for `None`.
fn names_of(language: Option<&Language>) -> [*const c_char; 2] {
    static NAMES: OnceLock<Vec<[CString; 2]>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let text = |text: &str| CString::new(text).unwrap_or_default();
        let all = LANGUAGES.iter();
        all.map(|l| [text(l.code), text(l.name)]).collect()
    });
    let index = language.and_then(|l| LANGUAGES.iter().position(|other| other == l));
    match index.and_then(|index| names.get(index)) {
        Some(names) => names.each_ref().map(|name| name.as_ptr()),
        None => [c"".as_ptr(); 2],
    }
}
