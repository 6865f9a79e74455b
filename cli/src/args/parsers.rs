//! Parsers of numbers, storage types and quantization names.

use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::{Map, Value};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tabla::dtype::DType;
use tabla::quant::i2_s::Layout;
use tabla::tools::QuantMix;

/// Parses a storage type; upper and lower case are equal.
pub(crate) fn storage_type(name: &str) -> Result<DType, String> {
    DType::from_name(&name.to_lowercase()).ok_or_else(|| "unknown storage type".to_string())
}

/// Returns a parser of the values of a choice, by their names.
pub(crate) fn choice<T: Clone + Send + Sync + 'static>(
    choices: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> {
    let names = choices.iter().map(|(name, _)| *name);
    PossibleValuesParser::new(names).try_map(|name| {
        let chosen = choices.iter().find(|(other, _)| *other == name);
        chosen.map(|(_, value)| value.clone()).ok_or("unknown name")
    })
}

/// Parses a number of threads; 0 and -1 are the default, 0.
pub(crate) fn threads(text: &str) -> Result<u32, String> {
    number::<i64>(-1, 4096)(text).map(|count| u32::try_from(count).unwrap_or(0))
}

/// Returns a parser of numbers in a range.
pub(crate) fn number<T>(min: T, max: T) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Copy,
{
    move |text| {
        let number: T = text.parse().map_err(|_| "expected a number".to_string())?;
        // NaN is in no range.
        match (min..=max).contains(&number) {
            true => Ok(number),
            false => Err(format!("{number} is not in the range {min} to {max}")),
        }
    }
}

/// Parses a JSON object.
pub(crate) fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("invalid JSON object: {error}"))
}

/// Parses the layout of `I2_S` tensors.
pub(crate) fn i2s_layout(name: &str) -> Result<Layout, String> {
    match name {
        "auto" => Ok(Layout::default()),
        name => {
            Layout::from_name(name).ok_or_else(|| "expected one of auto, 128, 64, 1x4".to_string())
        }
    }
}

/// Parses the name of a quantization.
pub(crate) fn mix(name: &str) -> Result<&'static QuantMix, String> {
    let names = || {
        tabla::tools::QUANT_MIXES
            .iter()
            .map(|m| m.name)
            .collect::<Vec<_>>()
    };
    QuantMix::named(name).ok_or_else(|| format!("expected one of {}", names().join(", ")))
}

/// Parses the path of a LoRA adapter, and its scale after an equals sign. A path can contain equals
/// signs: if all is a path that exists, or without a number after the last one, the scale is 1.
pub(crate) fn lora_adapter(text: &str) -> Result<(PathBuf, f32), String> {
    if text.is_empty() {
        return Err("expected ADAPTER or ADAPTER=SCALE".to_string());
    }
    if Path::new(text).exists() {
        return Ok((text.into(), 1.0));
    }
    let with_scale = text.rsplit_once('=').and_then(|(path, scale)| {
        let scale: f32 = scale.parse().ok()?;
        Some((path, scale))
    });
    match with_scale {
        Some((_, scale)) if !scale.is_finite() => {
            Err(format!("scale {scale}, expected a finite number"))
        }
        Some(("", _)) => Err("expected ADAPTER or ADAPTER=SCALE".to_string()),
        Some((path, scale)) => Ok((path.into(), scale)),
        None => Ok((text.into(), 1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_adapters_with_scales() {
        let check = |text: &str, path: &str, scale| {
            assert_eq!(lora_adapter(text), Ok((path.into(), scale)), "{text}");
        };
        check("style", "style", 1.0);
        check("style=0.5", "style", 0.5);
        check("style=-2", "style", -2.0);
        check("a=1/style", "a=1/style", 1.0);
        check("a=1/style.gguf=0", "a=1/style.gguf", 0.0);
        for text in ["", "=1", "style=inf", "style=NaN"] {
            assert!(lora_adapter(text).is_err(), "{text}");
        }
    }
}
