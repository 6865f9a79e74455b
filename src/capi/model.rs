//! The functions of a model: load, prefill, step, generate, logits, facts.
#![expect(unsafe_code, reason = "exported symbols take pointers from C")]

use super::guard::{TablaStatus, guard, guard_value, prepare_process};
use super::handles::{self, TablaModel};
use super::options::{
    STRUCT_BYTES_MAX, TablaGenerateOptions, TablaLoadOptions, TablaStats, finish_code, read_sized,
    write_sized,
};
use crate::decode::{Flow, Session};
use crate::error::{Result, bail};
use crate::load::{Progress, STAGES, Source};
use crate::model::Facts;
use crate::text::{Encode, Specials};
use std::ffi::{CStr, CString, c_char, c_void};
use std::path::PathBuf;
use std::time::Instant;

/// Version of this ABI: it changes when a program must be compiled again.
pub const TABLA_ABI_VERSION: u32 = 1;

/// Only the logits after the last token: `tabla_logits`.
pub const TABLA_LOGITS_LAST: i32 = 0;
/// The logits after every token of the sequence.
pub const TABLA_LOGITS_ALL: i32 = 1;

/// Hears of every token: its id and the text that it completes, which is empty while a character
/// is incomplete. `text` ends with a NUL beyond `text_bytes` and is valid during the call.
/// Return 0 to go on; anything else ends the generation.
pub type TablaTokenCallback = Option<
    unsafe extern "C" fn(
        token: u32,
        text: *const c_char,
        text_bytes: usize,
        user_data: *mut c_void,
    ) -> i32,
>;

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
}

/// Loads a model, or returns NULL and leaves the reason in `tabla_last_error`.
///
/// `path` NULL takes the small built-in story model. `shader_path` NULL takes the embedded
/// shaders. `max_context` 0 or less takes what the model was trained for, 4096 at most.
///
/// # Safety
///
/// `path` and `shader_path` are NULL or C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_load_model(
    path: *const c_char,
    shader_path: *const c_char,
    max_context: i32,
) -> *mut TablaModel {
    let max_context = u32::try_from(max_context).unwrap_or(0);
    let options = TablaLoadOptions {
        shader_path,
        max_context,
        ..TablaLoadOptions::DEFAULT
    };
    // SAFETY: the strings are the caller's, the options ours.
    unsafe { tabla_load_model_with(path, &raw const options) }
}

/// Loads a model with options, or returns NULL and leaves the reason in `tabla_last_error`.
/// NULL options are the defaults.
///
/// # Safety
///
/// `path` is NULL or a C string; `options` is NULL or points to a struct that begins with its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_load_model_with(
    path: *const c_char,
    options: *const TablaLoadOptions,
) -> *mut TablaModel {
    guard_value(|| {
        prepare_process();
        // SAFETY: the caller's promise.
        let given = unsafe { read_sized(options, TablaLoadOptions::DEFAULT) }?;
        // SAFETY: the caller's promise.
        let source = unsafe { path_of(path) }.map_or(Source::BuiltIn, Source::Path);
        // SAFETY: the caller's promise.
        let options = given.options(unsafe { path_of(given.shader_path) })?;
        let model = crate::load(&source, &options, &mut |progress| report(&given, progress))?;
        handles::insert(Session::new(model))
    })
    .unwrap_or(std::ptr::null_mut())
}

/// Frees a model. A call that is inside it is cancelled and ends first. NULL is an error.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_free_model(model: *mut TablaModel) -> TablaStatus {
    guard(|| handles::remove(model))
}

/// Stops what a model does, from any thread.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_cancel(model: *const TablaModel) -> TablaStatus {
    guard(|| handles::cancel(model))
}

/// Forgets the sequence of a model.
#[unsafe(no_mangle)]
pub extern "C" fn tabla_reset(model: *mut TablaModel) -> TablaStatus {
    guard(|| {
        handles::with(model, |session| {
            session.reset();
            Ok(())
        })
    })
}

/// Appends tokens to the sequence and runs them through the model.
///
/// # Safety
///
/// `tokens` points to `count` ids.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_prefill(
    model: *mut TablaModel,
    tokens: *const u32,
    count: usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let tokens = unsafe { slice_of(tokens, count, "tokens") }?;
        handles::with(model, |session| session.prefill(tokens, &mut |_, _| {}))
    })
}

/// Picks the next token, appends it to the sequence and writes it to `token`.
///
/// # Safety
///
/// `options` is NULL or points to a struct that begins with its size; `token` points to room for
/// an id.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_step(
    model: *mut TablaModel,
    options: *const TablaGenerateOptions,
    token: *mut u32,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { read_sized(options, TablaGenerateOptions::defaults()) }?;
        // SAFETY: the caller's promise.
        let out = unsafe { out_of(token, "token") }?;
        *out = handles::with(model, |session| session.step(&options.generate().sampling))?;
        Ok(())
    })
}

/// Encodes a prompt behind the sequence, runs it, and generates. NULL options are the defaults.
/// With an empty or NULL prompt it goes on from the sequence as it is. `stats` may be NULL.
///
/// # Safety
///
/// `prompt` is NULL or a C string; `options` is NULL or points to a struct that begins with its
/// size; `stats` is NULL or points to a `TablaStats`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_generate(
    model: *mut TablaModel,
    prompt: *const c_char,
    options: *const TablaGenerateOptions,
    callback: TablaTokenCallback,
    user_data: *mut c_void,
    stats: *mut TablaStats,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let options = unsafe { read_sized(options, TablaGenerateOptions::defaults()) }?;
        // SAFETY: the caller's promise.
        let prompt = unsafe { text_of(prompt) }?;
        let mut each = Caller {
            callback,
            user_data,
            text: Vec::new(),
        };
        let out = handles::with(model, |session| {
            generate(session, prompt, &options, &mut each)
        })?;
        // SAFETY: the caller's promise; NULL is allowed here.
        if let Some(stats) = unsafe { stats.as_mut() } {
            *stats = out;
        }
        Ok(())
    })
}

/// Writes logits: `TABLA_LOGITS_LAST` `[vocab]`, `TABLA_LOGITS_ALL` `[tokens, vocab]`, for all
/// tokens of the sequence. `capacity` and `count` are numbers of floats. With `out` NULL only
/// `count` is written.
///
/// # Safety
///
/// `out` is NULL or points to room for `capacity` floats; `count` points to a size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_logits(
    model: *mut TablaModel,
    rows: i32,
    out: *mut f32,
    capacity: usize,
    count: *mut usize,
) -> TablaStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let count = unsafe { out_of(count, "count") }?;
        *count = handles::with(model, |session| {
            let vocab = session.facts().vocab as usize;
            let needed = match rows {
                TABLA_LOGITS_LAST => vocab,
                TABLA_LOGITS_ALL => vocab * session.tokens().len(),
                other => bail!(Argument, "rows {other} is none of 0 (last), 1 (all)"),
            };
            if out.is_null() {
                return Ok(needed);
            }
            if capacity < needed {
                bail!(TooLarge, "{needed} logits do not fit room for {capacity}");
            }
            // SAFETY: the caller's room holds `capacity`, which is enough.
            let out = unsafe { std::slice::from_raw_parts_mut(out, needed) };
            match rows {
                TABLA_LOGITS_LAST => session.logits(out)?,
                _ => session.logits_all(out)?,
            }
            Ok(needed)
        })?;
        Ok(())
    })
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
        if info.is_null() {
            bail!(Argument, "info is NULL");
        }
        // SAFETY: the caller's struct begins with its size.
        let given = unsafe { info.cast::<u32>().read() };
        let size = given as usize;
        if size < size_of::<u32>() || size > STRUCT_BYTES_MAX {
            bail!(
                Argument,
                "struct_size is {size}: set it to sizeof(TablaModelInfo)"
            );
        }
        let facts = handles::read(model, |_, facts| Ok(TablaModelInfo::of(facts, given)))?;
        // SAFETY: the caller's struct holds `size` bytes.
        unsafe { write_sized(&facts, info, size) };
        Ok(())
    })
}

/// Fills options with the defaults. `size` is `sizeof(TablaGenerateOptions)`.
///
/// # Safety
///
/// `options` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_generate_options_init(
    options: *mut TablaGenerateOptions,
    size: usize,
) -> TablaStatus {
    guard(|| {
        if options.is_null() {
            bail!(Argument, "options is NULL");
        }
        if size < size_of::<u32>() || size > STRUCT_BYTES_MAX {
            bail!(
                Argument,
                "size is {size}: pass sizeof(TablaGenerateOptions)"
            );
        }
        let mut defaults = TablaGenerateOptions::defaults();
        defaults.struct_size = u32::try_from(size).expect("a small number");
        // SAFETY: the caller's room holds `size` bytes.
        unsafe { write_sized(&defaults, options, size) };
        Ok(())
    })
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

/// The C caller as the receiver of pieces.
struct Caller {
    callback: TablaTokenCallback,
    user_data: *mut c_void,
    /// The piece with a NUL behind it.
    text: Vec<u8>,
}

impl Caller {
    fn hear(&mut self, token: u32, text: &str) -> Flow {
        let Some(callback) = self.callback else {
            return Flow::Continue;
        };
        self.text.clear();
        self.text.extend_from_slice(text.as_bytes());
        self.text.push(0);
        // SAFETY: the caller's function, with text that lives through the call.
        let answer =
            unsafe { callback(token, self.text.as_ptr().cast(), text.len(), self.user_data) };
        if answer == 0 {
            Flow::Continue
        } else {
            Flow::Stop
        }
    }
}

fn generate(
    session: &mut Session,
    prompt: &str,
    options: &TablaGenerateOptions,
    each: &mut Caller,
) -> Result<TablaStats> {
    let options = options.generate();
    options.sampling.check()?;
    let start = Instant::now();
    let mut prompt_tokens = 0;
    if !prompt.is_empty() {
        let add_special = session.tokens().is_empty();
        let encode = Encode {
            add_special,
            specials: Specials::Text,
        };
        let tokens = session.tokenizer().encode(prompt, encode)?;
        session.prefill(&tokens, &mut |_, _| {})?;
        prompt_tokens = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
    }
    let prompt_ms = start.elapsed().as_secs_f64() * 1e3;
    let stats = session.generate(&options, &mut |piece| each.hear(piece.token, piece.text))?;
    Ok(TablaStats {
        prompt_tokens,
        tokens: stats.tokens,
        prompt_ms,
        tokens_ms: stats.took.as_secs_f64() * 1e3,
        finish: finish_code(stats.finish),
    })
}

/// Hands a stage to the caller's progress function.
fn report(options: &TablaLoadOptions, progress: &Progress) {
    let Some(callback) = options.progress else {
        return;
    };
    let name = CString::new(progress.stage.name()).unwrap_or_default();
    let milliseconds = progress.took.as_secs_f64() * 1e3;
    let done = progress.ended as f32 / STAGES as f32;
    // SAFETY: the caller's function, with a name that lives through the call.
    unsafe {
        callback(
            progress.stage as u32,
            name.as_ptr(),
            milliseconds,
            done,
            options.user_data,
        );
    }
}

impl TablaModelInfo {
    fn of(facts: &Facts, struct_size: u32) -> Self {
        Self {
            struct_size,
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

/// A path of C; `None` for NULL.
///
/// # Safety
///
/// `path` is NULL or a C string.
unsafe fn path_of(path: *const c_char) -> Option<PathBuf> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(path) };
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(bytes.to_bytes())))
    }
    #[cfg(not(unix))]
    {
        Some(PathBuf::from(bytes.to_string_lossy().into_owned()))
    }
}

/// A text of C; empty for NULL.
///
/// # Safety
///
/// `text` is NULL or a C string that outlives the use.
pub(super) unsafe fn text_of<'a>(text: *const c_char) -> Result<&'a str> {
    if text.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's promise.
    match unsafe { CStr::from_ptr(text) }.to_str() {
        Ok(text) => Ok(text),
        Err(error) => bail!(Argument, "the text is not UTF-8: {error}"),
    }
}

/// A span of C.
///
/// # Safety
///
/// `from` is NULL or points to `count` values that outlive the use.
pub(super) unsafe fn slice_of<'a, T>(from: *const T, count: usize, name: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if from.is_null() {
        bail!(Argument, "{name} is NULL");
    }
    if count
        .checked_mul(size_of::<T>())
        .is_none_or(|bytes| bytes > isize::MAX as usize)
    {
        bail!(Argument, "{name}: a count of {count} is no span of memory");
    }
    // SAFETY: the caller's promise, and the span fits the address space.
    Ok(unsafe { std::slice::from_raw_parts(from, count) })
}

/// Where a result goes.
///
/// # Safety
///
/// `to` is NULL or points to a `T` that nobody else touches during the call.
pub(super) unsafe fn out_of<'a, T>(to: *mut T, name: &str) -> Result<&'a mut T> {
    // SAFETY: the caller's promise.
    match unsafe { to.as_mut() } {
        Some(out) => Ok(out),
        None => bail!(Argument, "{name} is NULL"),
    }
}
