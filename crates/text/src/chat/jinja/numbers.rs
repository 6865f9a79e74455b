//! Python's conversions and rounding of numbers.

use super::failure::{Outcome, fail, too_large};
use super::strings::is_space;

/// `int(number)`.
#[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
pub(super) fn truncated(number: f64) -> Outcome<i128> {
    if !number.is_finite() {
        return fail(format_args!("cannot convert float {number} to integer"));
    }
    if number.abs() >= 1e38 {
        return too_large(format_args!("the number {number:e} is too large"));
    }
    Ok(number as i128)
}

/// `int(text, base)`; `None` if it raises a `ValueError`.
pub(super) fn parse_int(text: &str, base: u32) -> Outcome<Option<i128>> {
    let text = text.trim_matches(is_space);
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let prefix = match digits.get(..2).map(str::to_ascii_lowercase).as_deref() {
        Some("0x") => 16,
        Some("0o") => 8,
        Some("0b") => 2,
        _ => 0,
    };
    let is_zero = digits.trim_start_matches(['0', '_']).is_empty();
    let (base, digits) = match (base, prefix) {
        (0, 0) if digits.starts_with('0') && !is_zero => return Ok(None),
        (0, 0) => (10, digits),
        (0, prefix) => (prefix, &digits[2..]),
        (base, prefix) if base == prefix => (base, &digits[2..]),
        (2..=36, _) => (base, digits),
        _ => return Ok(None),
    };
    let Some(digits) = without_underscores(digits) else {
        return Ok(None);
    };
    if !digits.chars().all(|c| c.is_digit(base)) || digits.is_empty() {
        return Ok(None);
    }
    match i128::from_str_radix(&digits, base) {
        Ok(number) if text.starts_with('-') => Ok(Some(-number)),
        Ok(number) => Ok(Some(number)),
        Err(_) => too_large(format_args!("the number {digits:.40} is too large")),
    }
}

/// `float(text)`; `None` if it raises a `ValueError`.
pub(super) fn parse_float(text: &str) -> Option<f64> {
    let text = text.trim_matches(is_space);
    if text.contains('_') {
        return without_underscores(text)?.parse().ok();
    }
    text.parse().ok()
}

/// Removes underscores between digits; `None` if there is another one.
fn without_underscores(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let is_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_alphanumeric);
    let valid = |(at, _): (usize, &str)| at > 0 && is_digit(at - 1) && is_digit(at + 1);
    text.match_indices('_')
        .all(valid)
        .then(|| text.replace('_', ""))
}

/// `round(number, digits)` of a float: half to even, of the exact decimal value.
pub(super) fn round(number: f64, digits: i128) -> f64 {
    if !number.is_finite() {
        return number;
    }
    match usize::try_from(digits) {
        Ok(digits @ 0..=330) => format!("{number:.digits$}").parse().unwrap_or(number),
        Ok(_) => number,
        Err(_) => {
            let power = i32::try_from(-digits).unwrap_or(i32::MAX);
            let scale = 10f64.powi(power);
            match scale.is_finite() {
                true => (number / scale).round_ties_even() * scale,
                false => 0.0 * number,
            }
        }
    }
}

/// Python's `left // right` and `left % right` of floats.
pub(super) fn float_div_mod(left: f64, right: f64) -> (f64, f64) {
    let mut remainder = left % right;
    let mut quotient = (left - remainder) / right;
    if remainder == 0.0 {
        remainder = 0f64.copysign(right);
    } else if (right < 0.0) != (remainder < 0.0) {
        remainder += right;
        quotient -= 1.0;
    }
    let mut floor = quotient.floor();
    if quotient - floor > 0.5 {
        floor += 1.0;
    }
    if quotient == 0.0 {
        floor = 0f64.copysign(left / right);
    }
    (floor, remainder)
}
