//! Python's format specifications, such as `>8.2f`.

use super::failure::{Outcome, fail, too_large};
use super::heap::Heap;
use super::repr::{float, python_exponent, write_str};
use super::sink::Sink;
use super::strings::{characters, length};
use super::value::Value;
use std::cmp::Ordering;

/// Maximum precision of numbers.
const PRECISION_MAX: usize = 1000;

/// `[[fill]align][sign][#][0][width][grouping][.precision][type]`.
#[derive(Clone, Debug)]
pub(super) struct Spec {
    pub(super) fill: char,
    pub(super) align: Option<char>,
    pub(super) sign: char,
    pub(super) alternate: bool,
    pub(super) width: Option<usize>,
    pub(super) grouping: Option<char>,
    pub(super) precision: Option<usize>,
    /// Minimum number of digits of an integer: the precision of `%d`.
    pub(super) digits: usize,
    pub(super) kind: Option<char>,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            fill: ' ',
            align: None,
            sign: '-',
            alternate: false,
            width: None,
            grouping: None,
            precision: None,
            digits: 0,
            kind: None,
        }
    }
}

impl Spec {
    pub(super) fn parse(text: &str) -> Outcome<Self> {
        let mut spec = Self::default();
        let is_align = |c: Option<char>| matches!(c, Some('<' | '>' | '=' | '^'));
        let mut chars = text.chars().peekable();
        let second = text.chars().nth(1);
        if is_align(second) {
            spec.fill = chars.next().unwrap_or(' ');
            spec.align = chars.next();
        } else if is_align(text.chars().next()) {
            spec.align = chars.next();
        }
        if let Some(sign) = chars.next_if(|c| matches!(c, '+' | '-' | ' ')) {
            spec.sign = sign;
        }
        chars.next_if_eq(&'z');
        spec.alternate = chars.next_if_eq(&'#').is_some();
        if chars.peek() == Some(&'0') && spec.align.is_none() {
            (spec.fill, spec.align) = ('0', Some('='));
        }
        let number = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>| {
            let mut digits = String::new();
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            match digits.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) if digits.is_empty() => Ok(None),
                Err(_) => too_large("format: a width or precision is too large"),
            }
        };
        spec.width = number(&mut chars)?;
        spec.grouping = chars.next_if(|c| matches!(c, ',' | '_'));
        if chars.next_if_eq(&'.').is_some() {
            spec.precision = number(&mut chars)?;
            if spec.precision.is_none() {
                return fail("format: missing precision");
            }
        }
        spec.kind = chars.next();
        match chars.next() {
            None => Ok(spec),
            Some(_) => fail(format_args!("invalid format specifier {text:.40}")),
        }
    }

    fn is_empty(&self) -> bool {
        let numbers = [self.width, self.precision];
        let chars = [self.align, self.grouping, self.kind];
        numbers == [None; 2] && chars == [None; 3] && self.sign == '-' && !self.alternate
    }

    /// Writes a text of a sign and digits, with the fill.
    fn pad(&self, sign: &str, text: &str, align: char, out: &mut Sink<'_>) -> Outcome<()> {
        let used = length(sign) + length(text);
        let missing = self.width.unwrap_or(0).saturating_sub(used);
        let (left, inner, right) = match self.align.unwrap_or(align) {
            '<' => (0, 0, missing),
            '^' => (missing / 2, 0, missing - missing / 2),
            '=' => (0, missing, 0),
            _ => (missing, 0, 0),
        };
        let fill = self.fill.to_string();
        out.repeat(&fill, left)?;
        out.push(sign)?;
        out.repeat(&fill, inner)?;
        out.push(text)?;
        out.repeat(&fill, right)
    }
}

/// Writes `format(value, spec)`.
pub(super) fn format_value(
    heap: &Heap,
    value: &Value,
    spec: &Spec,
    out: &mut Sink<'_>,
) -> Outcome<()> {
    let limit = match value {
        Value::Str(_) => None,
        _ => spec
            .precision
            .filter(|precision| *precision > PRECISION_MAX),
    };
    if limit.is_some() || spec.digits > PRECISION_MAX {
        return too_large(format_args!(
            "format: the precision exceeds the limit of {PRECISION_MAX}"
        ));
    }
    if spec.is_empty() {
        return write_str(heap, value, out);
    }
    match (value, spec.kind) {
        (Value::Int(_) | Value::Bool(_), _) => format_integer(value.int().unwrap_or(0), spec, out),
        (Value::Float(number), _) => format_float(*number, spec, out),
        (Value::Str(text), Some('s') | None) => {
            let end = spec.precision.unwrap_or(usize::MAX).min(length(text));
            if spec.align == Some('=') {
                return fail("'=' alignment not allowed in string format specifier");
            }
            spec.pad("", characters(text, 0, end), '<', out)
        }
        (value, _) => fail(format_args!(
            "unsupported format string for {}",
            value.type_name()
        )),
    }
}

fn format_integer(number: i128, spec: &Spec, out: &mut Sink<'_>) -> Outcome<()> {
    let size = number.unsigned_abs();
    if spec.precision.is_some() && matches!(spec.kind, None | Some('d' | 'x' | 'X' | 'o' | 'b')) {
        return fail("precision not allowed in integer format specifier");
    }
    let (digits, prefix, group) = match spec.kind {
        None | Some('d' | 'n') => (size.to_string(), "", 3),
        Some('x') => (format!("{size:x}"), "0x", 4),
        Some('X') => (format!("{size:X}"), "0X", 4),
        Some('o') => (format!("{size:o}"), "0o", 4),
        Some('b') => (format!("{size:b}"), "0b", 4),
        Some('c') => {
            let c = u32::try_from(number).ok().and_then(char::from_u32);
            return match c {
                Some(c) => spec.pad("", &c.to_string(), '<', out),
                None => fail("%c requires a character"),
            };
        }
        #[expect(clippy::cast_precision_loss, reason = "as Python's float()")]
        Some('e' | 'E' | 'f' | 'F' | 'g' | 'G' | '%') => {
            return format_float(number as f64, spec, out);
        }
        Some(kind) => {
            return fail(format_args!("unknown format code {kind:?} for type int"));
        }
    };
    let digits = format!("{digits:0>width$}", width = spec.digits.max(1));
    let prefix = if spec.alternate { prefix } else { "" };
    let sign = format!("{}{prefix}", sign(number.cmp(&0), spec));
    write_number(&sign, &digits, group, spec, out)
}

/// The sign of a number that compares with zero as `order`.
fn sign(order: Ordering, spec: &Spec) -> &'static str {
    match (order == Ordering::Less, spec.sign) {
        (true, _) => "-",
        (false, '+') => "+",
        (false, ' ') => " ",
        (false, _) => "",
    }
}

/// Writes digits with separators of groups, and the fill.
fn write_number(
    sign: &str,
    digits: &str,
    group: usize,
    spec: &Spec,
    out: &mut Sink<'_>,
) -> Outcome<()> {
    let Some(separator) = spec.grouping else {
        return spec.pad(sign, digits, '>', out);
    };
    let end = digits
        .find(|c: char| !c.is_ascii_hexdigit())
        .unwrap_or(digits.len());
    let (whole, rest) = digits.split_at(end);
    let mut whole = whole.to_string();
    // Zeros of the fill are grouped, too.
    if spec.fill == '0' && spec.align == Some('=') {
        let width = spec
            .width
            .unwrap_or(0)
            .saturating_sub(length(sign) + rest.len());
        if width > PRECISION_MAX {
            return too_large(format_args!(
                "format: the width of digits in groups exceeds the limit of {PRECISION_MAX}"
            ));
        }
        while whole.len() + (whole.len() - 1) / group < width {
            whole.insert(0, '0');
        }
    }
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(group) {
            grouped.push(separator);
        }
        grouped.push(digit);
    }
    spec.pad(sign, &format!("{grouped}{rest}"), '>', out)
}

fn format_float(number: f64, spec: &Spec, out: &mut Sink<'_>) -> Outcome<()> {
    let size = number.abs();
    let precision = spec.precision.unwrap_or(6);
    let is_upper = matches!(spec.kind, Some('E' | 'F' | 'G'));
    let mut text = match spec.kind {
        _ if !number.is_finite() => if number.is_nan() { "nan" } else { "inf" }.to_string(),
        None if spec.precision.is_none() => float(size),
        None => {
            let text = general(size, precision.max(1), spec);
            match text.contains(['.', 'e']) {
                true => text,
                false => format!("{text}.0"),
            }
        }
        Some('f' | 'F') => format!("{size:.precision$}"),
        Some('e' | 'E') => python_exponent(&format!("{size:.precision$e}")),
        Some('g' | 'G' | 'n') => general(size, precision.max(1), spec),
        Some('%') => format!("{:.precision$}%", size * 100.0),
        Some(kind) => {
            return fail(format_args!("unknown format code {kind:?} for type float"));
        }
    };
    if is_upper {
        text = text.to_uppercase();
    }
    let order = match number.is_sign_negative() && !number.is_nan() {
        true => Ordering::Less,
        false => Ordering::Equal,
    };
    if !number.is_finite() {
        return spec.pad(sign(order, spec), &text, '>', out);
    }
    write_number(sign(order, spec), &text, 3, spec, out)
}

/// The format `g`: fixed or scientific, without trailing zeros.
fn general(size: f64, precision: usize, spec: &Spec) -> String {
    let scientific = format!("{size:.*e}", precision - 1);
    let exponent = scientific
        .split_once('e')
        .and_then(|(_, e)| e.parse::<i32>().ok());
    let exponent = exponent.unwrap_or(0);
    let digits = i32::try_from(precision).unwrap_or(i32::MAX);
    let trim = |text: &str| match text.contains('.') && !spec.alternate {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    if !(-4..digits).contains(&exponent) {
        let (mantissa, power) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        return python_exponent(&format!("{}e{power}", trim(mantissa)));
    }
    let decimals = usize::try_from(digits - 1 - exponent).unwrap_or(0);
    trim(&format!("{size:.decimals$}"))
}
