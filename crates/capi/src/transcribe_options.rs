//! Options of transcriptions in the C API.
#![expect(unsafe_code, reason = "structs come through pointers from C")]

use super::guard::{TablaStatus, guard};
use super::pointers::{Choice, choose, init_options, path_of, read_sized, text_of};
use std::ffi::c_char;
use std::sync::Arc;
use tabla::audio::{PcmConverter, SAMPLE_RATE, VoiceModel};
use tabla::error::{Context, bail};
use tabla::speech::{Task, Thresholds};
use tabla::{Cancel, Result, TranscribeOptions};

/// Text in the spoken language: `TablaTranscribeOptions.task`.
pub const TABLA_TASK_TRANSCRIBE: i32 = 0;
/// English text. Only multilingual models translate.
pub const TABLA_TASK_TRANSLATE: i32 = 1;

const TASKS: [Choice<Task>; 2] = [
    (TABLA_TASK_TRANSCRIBE, "transcribe", Task::Transcribe),
    (TABLA_TASK_TRANSLATE, "translate", Task::Translate),
];

/// Options of transcriptions. Zeros are not the defaults: initialize the struct with
/// `tabla_transcribe_options_init`, which also sets `struct_size` and sets pointers to NULL. The
/// defaults are those of OpenAI's program.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TablaTranscribeOptions {
    /// `sizeof(TablaTranscribeOptions)`.
    pub struct_size: u32,
    /// `TABLA_TASK_TRANSCRIBE` or `_TRANSLATE`. Default transcribe.
    pub task: i32,
    /// Sample rate of samples that the program passes, 1000 to 768000 Hz. Default 16000.
    pub sample_rate: u32,
    /// Number of channels of samples that the program passes, interleaved, at most 32. Default 1.
    pub channels: u32,
    /// Number of beams at temperature 0, 1 to 8; 1: greedy. Default 5.
    pub beam_size: u32,
    /// Number of samples at a temperature above 0, of which the most likely is kept, 1 to 8.
    /// Default 5.
    pub best_of: u32,
    /// Not 0: segments have timestamps. 0: each window of 30 seconds is one segment. Default 1.
    pub timestamps: u32,
    /// Not 0: segments have words with times. Default 0.
    pub word_timestamps: u32,
    /// Not 0: the text of earlier windows is part of the prompt. Default 1.
    pub condition_on_previous_text: u32,
    /// Must be 0.
    pub reserved: u32,
    /// Seed of samples. Default 0.
    pub seed: u64,
    /// First temperature, 0 to 1. Default 0.
    pub temperature: f64,
    /// Increment of the temperature after each failed attempt; 0: one attempt. Default 0.2.
    pub temperature_increment: f64,
    /// Beam search ends when `beam_size * patience` texts are finished. Default 1.
    pub patience: f64,
    /// Exponent of the length penalty, 0 to 1; less than 0: sums are divided by lengths. Default
    /// -1.
    pub length_penalty: f64,
    /// An attempt with a higher compression ratio has failed; NaN: off. Default 2.4.
    pub compression_ratio_threshold: f64,
    /// An attempt with a lower average log-probability has failed; NaN: off. Default -1.
    pub logprob_threshold: f64,
    /// A window with a higher probability of no speech is silent, unless its average
    /// log-probability is above `logprob_threshold`; NaN: off. Default 0.6.
    pub no_speech_threshold: f64,
    /// Latest start of the first segment of a window in seconds. Default 1.
    pub max_initial_timestamp: f64,
    /// Level in dBFS below which at least 2 seconds of audio are skipped; NaN: off. Default -60.
    pub silence_level: f64,
    /// Code or English name of the language; NULL: detected in the first 30 seconds. English models
    /// ignore it.
    pub language: *const c_char,
    /// Text before the recording, such as names that occur in it, or NULL.
    pub initial_prompt: *const c_char,
    /// Path of a Silero model of voices, a ggml file of whisper.cpp: at least 2 seconds of audio
    /// without speech are skipped, and `silence_level` is ignored. Every transcription reads the
    /// file, of 1 MB. NULL: `silence_level` is used.
    pub vad_model: *const c_char,
}

impl TablaTranscribeOptions {
    #[expect(clippy::cast_possible_truncation, reason = "a small struct")]
    const SIZE: u32 = size_of::<Self>() as u32;

    fn defaults() -> Self {
        let defaults = TranscribeOptions::default();
        let number = |x: Option<f64>| x.unwrap_or(f64::NAN);
        Self {
            struct_size: Self::SIZE,
            task: TABLA_TASK_TRANSCRIBE,
            sample_rate: SAMPLE_RATE,
            channels: 1,
            beam_size: defaults.beam_size,
            best_of: defaults.best_of,
            timestamps: defaults.timestamps.into(),
            word_timestamps: defaults.word_timestamps.into(),
            condition_on_previous_text: defaults.condition_on_previous_text.into(),
            reserved: 0,
            seed: defaults.seed,
            temperature: defaults.temperature,
            temperature_increment: defaults.temperature_increment.unwrap_or(0.0),
            patience: defaults.patience.into(),
            length_penalty: defaults.length_penalty.map_or(-1.0, f64::from),
            compression_ratio_threshold: number(defaults.thresholds.compression_ratio),
            logprob_threshold: number(defaults.thresholds.logprob),
            no_speech_threshold: number(defaults.thresholds.no_speech),
            max_initial_timestamp: defaults.max_initial_timestamp,
            silence_level: number(defaults.silence_level.map(f64::from)),
            language: std::ptr::null(),
            initial_prompt: std::ptr::null(),
            vad_model: std::ptr::null(),
        }
    }

    /// Converts the options, and loads the model of voices.
    ///
    /// # Safety
    ///
    /// The pointers are NULL or C strings.
    pub(super) unsafe fn options(&self, cancel: Cancel) -> Result<TranscribeOptions> {
        if self.reserved != 0 {
            bail!(Argument, "expected reserved to be 0, got {}", self.reserved);
        }
        // SAFETY: guaranteed by the caller.
        let language = unsafe { text_of(self.language, "language") }?;
        // SAFETY: guaranteed by the caller.
        let prompt = unsafe { text_of(self.initial_prompt, "initial_prompt") }?;
        // SAFETY: guaranteed by the caller.
        let voice_model = unsafe { voice_model_of(self.vad_model) }?;
        let text = |text: &str| Some(text.to_string()).filter(|text| !text.is_empty());
        let number = |x: f64| Some(x).filter(|x| !x.is_nan());
        #[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
        let [patience, length_penalty, silence_level] =
            [self.patience, self.length_penalty, self.silence_level].map(|x| x as f32);
        let increment = self.temperature_increment;
        Ok(TranscribeOptions::default()
            .language(text(language))
            .task(choose("task", self.task, &TASKS)?)
            .beam_size(self.beam_size)
            .patience(patience)
            .length_penalty((length_penalty >= 0.0).then_some(length_penalty))
            .best_of(self.best_of)
            .temperature(self.temperature)
            .temperature_increment((increment != 0.0).then_some(increment))
            .thresholds(Thresholds {
                compression_ratio: number(self.compression_ratio_threshold),
                logprob: number(self.logprob_threshold),
                no_speech: number(self.no_speech_threshold),
            })
            .condition_on_previous_text(self.condition_on_previous_text != 0)
            .initial_prompt(text(prompt))
            .timestamps(self.timestamps != 0)
            .word_timestamps(self.word_timestamps != 0)
            .max_initial_timestamp(self.max_initial_timestamp)
            .silence_level(Some(silence_level).filter(|level| !level.is_nan()))
            .voice_model(voice_model)
            .seed(self.seed)
            .cancel(Some(cancel)))
    }

    /// Returns the converter of samples that the program passes.
    pub(super) fn converter(&self) -> Result<PcmConverter> {
        PcmConverter::new(self.sample_rate, self.channels as usize)
    }
}

/// Sets options to the defaults. `size` is `sizeof(TablaTranscribeOptions)`.
///
/// # Safety
///
/// `options` points to `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tabla_transcribe_options_init(
    options: *mut TablaTranscribeOptions,
    size: usize,
) -> TablaStatus {
    guard(|| {
        let defaults = TablaTranscribeOptions::defaults();
        // SAFETY: guaranteed by the caller.
        unsafe { init_options(options, size, "TablaTranscribeOptions", &defaults) }
    })
}

/// Loads the model of voices at a path, or returns `None` for NULL.
///
/// # Safety
///
/// `path` is NULL or a C string.
unsafe fn voice_model_of(path: *const c_char) -> Result<Option<Arc<VoiceModel>>> {
    // SAFETY: guaranteed by the caller.
    let Some(path) = (unsafe { path_of(path) }) else {
        return Ok(None);
    };
    if path.as_os_str().is_empty() {
        bail!(
            Argument,
            "vad_model is an empty string: expected the path of a Silero model"
        );
    }
    let model = VoiceModel::open(&path).context("vad_model")?;
    Ok(Some(Arc::new(model)))
}

/// Reads the caller's options, or the defaults for NULL.
///
/// # Safety
///
/// `options` is NULL or points to a struct with `struct_size` set.
pub(super) unsafe fn options_of(
    options: *const TablaTranscribeOptions,
) -> Result<TablaTranscribeOptions> {
    // SAFETY: guaranteed by the caller.
    unsafe { read_sized(options, TablaTranscribeOptions::defaults()) }
}
