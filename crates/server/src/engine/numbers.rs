//! Parses integers of requests, and checks the ranges of numbers.

use crate::http::error::{ApiError, ApiResult};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An integer, which some clients write with a fraction of zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Int(pub(crate) i64);

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Value::deserialize(deserializer)?;
        let whole = |value: &f64| value.fract() == 0.0 && value.abs() < 9e15;
        #[expect(clippy::cast_possible_truncation, reason = "whole and in range")]
        let from_float = |value: f64| value as i64;
        let value = number.as_i64();
        let value = value.or_else(|| number.as_u64().map(|_| i64::MAX));
        let value = value.or_else(|| number.as_f64().filter(whole).map(from_float));
        value
            .map(Self)
            .ok_or_else(|| serde::de::Error::custom("expected an integer"))
    }
}

impl Int {
    /// Returns the number if it is in the range.
    pub(crate) fn in_range(self, name: &str, min: i64, max: i64) -> ApiResult<i64> {
        match (min..=max).contains(&self.0) {
            true => Ok(self.0),
            false => Err(ApiError::field(
                name,
                format_args!("must be between {min} and {max}, got {}", self.0),
            )),
        }
    }

    /// Returns the number as `u32` if it is in the range.
    pub(crate) fn u32_in(self, name: &str, min: u32, max: u32) -> ApiResult<u32> {
        let value = self.in_range(name, min.into(), max.into())?;
        Ok(u32::try_from(value).unwrap_or(max))
    }
}

/// Checks the range of a number.
pub(super) fn float_in(name: &str, value: Option<f32>, min: f32, max: f32) -> ApiResult<()> {
    match value {
        Some(value) if !(min..=max).contains(&value) => {
            let message = format_args!("must be between {min} and {max}, got {value}");
            Err(ApiError::field(name, message))
        }
        _ => Ok(()),
    }
}

/// Checks the range of an integer.
pub(super) fn int_in(name: &str, value: Option<Int>, min: i64, max: i64) -> ApiResult<()> {
    value.map_or(Ok(()), |value| value.in_range(name, min, max).map(drop))
}

/// Returns a count, or its default; a negative number is `negative`.
pub(super) fn count_or(value: Option<Int>, default: u32, negative: u32) -> u32 {
    match value {
        None => default,
        Some(Int(value)) if value < 0 => negative,
        Some(Int(value)) => u32::try_from(value).unwrap_or(u32::MAX),
    }
}
