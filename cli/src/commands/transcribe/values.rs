//! Values of options of decoding.

use tabla::speech::Language;

/// A language; `None`: detected.
pub(super) type SpokenLanguage = Option<&'static Language>;

/// A level in dBFS; `None`: off.
pub(super) type SilenceLevel = Option<f32>;

/// Parses the name of a language; `auto` detects it.
pub(super) fn language(name: &str) -> Result<SpokenLanguage, String> {
    if name == "auto" {
        return Ok(None);
    }
    let found = Language::find(name).map_err(|error| error.message().to_string());
    found.map(Some)
}

/// Parses a level in dBFS, or `off`.
pub(super) fn silence_level(text: &str) -> Result<SilenceLevel, String> {
    if text == "off" {
        return Ok(None);
    }
    let level = text.parse().ok();
    let level = level.filter(|x| (-200.0..=0.0).contains(x)).map(Some);
    level.ok_or_else(|| "expected a level from -200 to 0 dBFS, such as -60, or off".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_languages_and_levels() {
        assert_eq!(language("auto"), Ok(None));
        let german = language("German").expect("a language");
        assert_eq!(german.map(|language| language.code), Some("de"));
        assert!(language("klingon").is_err_and(|e| e.contains("unknown language \"klingon\"")));
        assert_eq!(silence_level("off"), Ok(None));
        assert_eq!(silence_level("-45"), Ok(Some(-45.0)));
        for wrong in ["", "loud", "nan", "inf"] {
            assert!(silence_level(wrong).is_err(), "{wrong}");
        }
    }
}
