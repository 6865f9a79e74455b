//! Options of transcriptions in the C API.
#![expect(unsafe_code, reason = "structs come through pointers from C")]

use super::guard::{TablaStatus, guard};
use super::options::transcribe::TablaTranscribeOptions;
use super::pointers::{init_options, path_of, read_sized};
use std::ffi::c_char;
use std::sync::Arc;
use tabla::audio::{PcmConverter, VoiceModel};
use tabla::error::{Context, bail};
use tabla::speech::Thresholds;
use tabla::{Cancel, Result, TranscribeOptions};

impl TablaTranscribeOptions {
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
        let options = unsafe { self.plain_options() }?;
        // SAFETY: guaranteed by the caller.
        let voice_model = unsafe { voice_model_of(self.vad_model) }?;
        let number = |x: f64| Some(x).filter(|x| !x.is_nan());
        #[expect(clippy::cast_possible_truncation, reason = "rounds to f32")]
        let [patience, length_penalty, silence_level] =
            [self.patience, self.length_penalty, self.silence_level].map(|x| x as f32);
        let increment = self.temperature_increment;
        Ok(options
            .patience(patience)
            .length_penalty((length_penalty >= 0.0).then_some(length_penalty))
            .temperature_increment((increment != 0.0).then_some(increment))
            .thresholds(Thresholds {
                compression_ratio: number(self.compression_ratio_threshold),
                logprob: number(self.logprob_threshold),
                no_speech: number(self.no_speech_threshold),
            })
            .silence_level(Some(silence_level).filter(|level| !level.is_nan()))
            .voice_model(voice_model)
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
        let defaults = TablaTranscribeOptions::DEFAULT;
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
    unsafe { read_sized(options, TablaTranscribeOptions::DEFAULT) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tabla::audio::SAMPLE_RATE;

    #[test]
    fn defaults_are_those_of_the_library() {
        let defaults = TablaTranscribeOptions::DEFAULT;
        // SAFETY: the pointers are NULL.
        let options = unsafe { defaults.options(Cancel::new()) }.expect("the defaults are valid");
        let options = options.cancel(None);
        let expected = TranscribeOptions::default();
        assert_eq!(format!("{options:?}"), format!("{expected:?}"));
        assert_eq!(defaults.sample_rate, SAMPLE_RATE);
    }
}
