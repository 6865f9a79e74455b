//! Parsers of numbers, storage types and quantization names.

use std::path::{Path, PathBuf};
use tabla::dtype::DType;
use tabla::tools::QuantMix;

/// Parses a storage type; upper and lower case are equal.
pub(crate) fn storage_type(name: &str) -> Result<DType, String> {
    DType::from_name(&name.to_lowercase()).ok_or_else(|| "unknown storage type".to_string())
}

/// Parses one of the given types.
pub(crate) fn one_of(types: &[DType], name: &str) -> Result<DType, String> {
    let names = || types.iter().map(|dtype| dtype.name()).collect::<Vec<_>>();
    let dtype = types.iter().find(|dtype| dtype.name() == name);
    let error = || format!("expected one of {}", names().join(", "));
    dtype.copied().ok_or_else(error)
}

/// Returns a parser of numbers in a range.
pub(crate) fn number(min: f32, max: f32) -> impl Fn(&str) -> Result<f32, String> + Clone {
    move |text| {
        let number: f32 = text.parse().map_err(|_| "expected a number".to_string())?;
        // NaN is in no range.
        match (min..=max).contains(&number) {
            true => Ok(number),
            false => Err(format!("{number} is not in the range {min} to {max}")),
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
