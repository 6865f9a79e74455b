//! Languages of Whisper: codes, names and aliases.

use tabla_core::error::{Result, bail};

/// A language of Whisper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Language {
    /// Code in the language token: ISO 639-1, or ISO 639-3 for `haw` and `yue`.
    pub code: &'static str,
    /// English name in lower case, as `verbose_json` contains it.
    pub name: &'static str,
    /// Other accepted names.
    pub aliases: &'static [&'static str],
}

impl Language {
    /// Finds a language by code, name or alias, regardless of case. `_` is equal to a space.
    ///
    /// # Errors
    ///
    /// `Argument` with the accepted codes if there is no such language.
    pub fn find(text: &str) -> Result<&'static Self> {
        let wanted = text.trim().to_lowercase().replace('_', " ");
        let mut all = LANGUAGES.iter();
        if let Some(found) = all.find(|language| language.is_called(&wanted)) {
            return Ok(found);
        }
        let codes = LANGUAGES.map(|language| language.code).join(", ");
        bail!(
            Argument,
            "unknown language {text:?}: expected an English name such as `german`, or one of {codes}"
        );
    }

    /// Returns whether words are separated by spaces.
    pub fn has_spaces(&self) -> bool {
        !matches!(self.code, "zh" | "ja" | "th" | "lo" | "my" | "yue")
    }

    /// Position in [`LANGUAGES`], which is the order of the language tokens.
    pub(crate) fn index(&self) -> u32 {
        let same = LANGUAGES.iter().zip(0..).find(|(l, _)| *l == self);
        same.map_or(0, |(_, index)| index)
    }

    fn is_called(&self, name: &str) -> bool {
        self.code == name || self.name == name || self.aliases.contains(&name)
    }
}

const fn language(
    code: &'static str,
    name: &'static str,
    aliases: &'static [&'static str],
) -> Language {
    Language {
        code,
        name,
        aliases,
    }
}

/// Languages in the order of their tokens. Models of 99 languages lack the last.
pub const LANGUAGES: [Language; 100] = [
    language("en", "english", &[]),
    language("zh", "chinese", &["mandarin"]),
    language("de", "german", &[]),
    language("es", "spanish", &["castilian"]),
    language("ru", "russian", &[]),
    language("ko", "korean", &[]),
    language("fr", "french", &[]),
    language("ja", "japanese", &[]),
    language("pt", "portuguese", &[]),
    language("tr", "turkish", &[]),
    language("pl", "polish", &[]),
    language("ca", "catalan", &["valencian"]),
    language("nl", "dutch", &["flemish"]),
    language("ar", "arabic", &[]),
    language("sv", "swedish", &[]),
    language("it", "italian", &[]),
    language("id", "indonesian", &[]),
    language("hi", "hindi", &[]),
    language("fi", "finnish", &[]),
    language("vi", "vietnamese", &[]),
    language("he", "hebrew", &[]),
    language("uk", "ukrainian", &[]),
    language("el", "greek", &[]),
    language("ms", "malay", &[]),
    language("cs", "czech", &[]),
    language("ro", "romanian", &["moldavian", "moldovan"]),
    language("da", "danish", &[]),
    language("hu", "hungarian", &[]),
    language("ta", "tamil", &[]),
    language("no", "norwegian", &[]),
    language("th", "thai", &[]),
    language("ur", "urdu", &[]),
    language("hr", "croatian", &[]),
    language("bg", "bulgarian", &[]),
    language("lt", "lithuanian", &[]),
    language("la", "latin", &[]),
    language("mi", "maori", &[]),
    language("ml", "malayalam", &[]),
    language("cy", "welsh", &[]),
    language("sk", "slovak", &[]),
    language("te", "telugu", &[]),
    language("fa", "persian", &[]),
    language("lv", "latvian", &[]),
    language("bn", "bengali", &[]),
    language("sr", "serbian", &[]),
    language("az", "azerbaijani", &[]),
    language("sl", "slovenian", &[]),
    language("kn", "kannada", &[]),
    language("et", "estonian", &[]),
    language("mk", "macedonian", &[]),
    language("br", "breton", &[]),
    language("eu", "basque", &[]),
    language("is", "icelandic", &[]),
    language("hy", "armenian", &[]),
    language("ne", "nepali", &[]),
    language("mn", "mongolian", &[]),
    language("bs", "bosnian", &[]),
    language("kk", "kazakh", &[]),
    language("sq", "albanian", &[]),
    language("sw", "swahili", &[]),
    language("gl", "galician", &[]),
    language("mr", "marathi", &[]),
    language("pa", "punjabi", &["panjabi"]),
    language("si", "sinhala", &["sinhalese"]),
    language("km", "khmer", &[]),
    language("sn", "shona", &[]),
    language("yo", "yoruba", &[]),
    language("so", "somali", &[]),
    language("af", "afrikaans", &[]),
    language("oc", "occitan", &[]),
    language("ka", "georgian", &[]),
    language("be", "belarusian", &[]),
    language("tg", "tajik", &[]),
    language("sd", "sindhi", &[]),
    language("gu", "gujarati", &[]),
    language("am", "amharic", &[]),
    language("yi", "yiddish", &[]),
    language("lo", "lao", &[]),
    language("uz", "uzbek", &[]),
    language("fo", "faroese", &[]),
    language("ht", "haitian creole", &["haitian"]),
    language("ps", "pashto", &["pushto"]),
    language("tk", "turkmen", &[]),
    language("nn", "nynorsk", &[]),
    language("mt", "maltese", &[]),
    language("sa", "sanskrit", &[]),
    language("lb", "luxembourgish", &["letzeburgesch"]),
    language("my", "myanmar", &["burmese"]),
    language("bo", "tibetan", &[]),
    language("tl", "tagalog", &[]),
    language("mg", "malagasy", &[]),
    language("as", "assamese", &[]),
    language("tt", "tatar", &[]),
    language("haw", "hawaiian", &[]),
    language("ln", "lingala", &[]),
    language("ha", "hausa", &[]),
    language("ba", "bashkir", &[]),
    language("jw", "javanese", &[]),
    language("su", "sundanese", &[]),
    language("yue", "cantonese", &[]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn finds_codes_names_and_aliases() {
        let code = |text: &str| Language::find(text).map(|l| l.code);
        for (text, expected) in [
            ("en", "en"),
            ("German", "de"),
            (" FR ", "fr"),
            ("haitian creole", "ht"),
            ("Haitian_Creole", "ht"),
            ("Mandarin", "zh"),
            ("moldovan", "ro"),
            ("yue", "yue"),
        ] {
            assert_eq!(code(text).unwrap(), expected, "{text}");
        }
        let message = code("klingon").unwrap_err().to_string();
        assert!(message.contains("\"klingon\"") && message.contains("en, zh, de"));
        code("").unwrap_err();
    }

    #[test]
    fn names_are_unique() {
        let mut names = BTreeSet::new();
        for (at, language) in (0..).zip(&LANGUAGES) {
            assert_eq!(language.index(), at);
            let own = [language.code, language.name];
            for name in own.iter().chain(language.aliases) {
                assert!(names.insert(*name), "{name}");
            }
        }
        assert_eq!(names.len(), 212);
    }
}
