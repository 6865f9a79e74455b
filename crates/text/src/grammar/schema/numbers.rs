//! Bounds of numbers. llguidance converts them to f64 and 64-bit integers, so this module moves bounds that
//! these types do not represent to the nearest number within the range.

#![expect(
    clippy::cast_possible_truncation,
    reason = "conversions of f64 saturate, and results are compared with the original"
)]

use serde_json::{Map, Number, Value as Json};

/// Greatest bound of a number that is not an integer: f64 before 10^18.
const NUMBER_MAX: f64 = 999_999_999_999_999_872.0;
/// Greatest f64 below 2^63. An integer may have it as a bound with either sign.
const INTEGER_MAX: i128 = (1 << 63) - 1024;
/// Greatest integer.
const I64_MAX: i128 = i64::MAX as i128;
/// Integers from this magnitude on need both bounds.
const ONE_SIDED_MAX: i128 = 1_000_000_000_000_000_000;

/// Reason for a constant that a grammar cannot express.
pub(super) const INEXACT: &str =
    "constants beyond 2^53 are supported if they are f64 numbers above -2^63";

/// A bound.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Bound {
    value: f64,
    /// Value of an integer.
    integer: Option<i128>,
    is_exclusive: bool,
}

/// Converts the bounds of a schema, which `is_integer` says to allow only integers, so that the grammar
/// allows only values within them. Exclusive bounds may be flags, as in draft 4.
///
/// # Errors
/// The key and the reason for a bound that a grammar cannot express.
#[expect(clippy::fn_params_excessive_bools, reason = "the only option")]
pub(super) fn convert(
    fields: &mut Map<String, Json>,
    is_integer: bool,
) -> Result<(), (&'static str, String)> {
    let lower = take(fields, "minimum", "exclusiveMinimum", 1.0)?;
    let upper = take(fields, "maximum", "exclusiveMaximum", -1.0)?;
    // The upper bound with the opposite sign is a lower bound.
    match is_integer {
        true => integers(fields, lower, upper),
        false => numbers(fields, lower, upper),
    }
}

/// Removes the bounds in one direction. Returns the one that is closer to the range, times `sign`.
fn take(
    fields: &mut Map<String, Json>,
    inclusive: &'static str,
    exclusive: &'static str,
    sign: f64,
) -> Result<Option<Bound>, (&'static str, String)> {
    let mut bound = None;
    let is_flag = fields.get(exclusive) == Some(&Json::Bool(true));
    for (key, is_exclusive) in [(inclusive, is_flag), (exclusive, true)] {
        let number = match fields.remove(key) {
            None | Some(Json::Bool(_)) => continue,
            Some(Json::Number(number)) => number,
            Some(other) => return Err((key, format!("expected a number, got {other}"))),
        };
        let next = Bound {
            value: number.as_f64().unwrap_or(f64::NAN) * sign,
            integer: integer(&number).map(|value| if sign < 0.0 { -value } else { value }),
            is_exclusive,
        };
        let is_closer = |bound: Bound| {
            let order = match (next.integer, bound.integer) {
                (Some(next), Some(bound)) => next.cmp(&bound),
                _ => next.value.total_cmp(&bound.value),
            };
            order.is_gt() || order.is_eq() && next.is_exclusive
        };
        bound = bound.filter(|bound| !is_closer(*bound)).or(Some(next));
    }
    Ok(bound)
}

/// Returns the value of an integer.
fn integer(number: &Number) -> Option<i128> {
    let value = number.as_i64().map(i128::from);
    value.or_else(|| number.as_u64().map(i128::from))
}

/// Sets the bounds of numbers. `upper` has the opposite sign.
fn numbers(
    fields: &mut Map<String, Json>,
    lower: Option<Bound>,
    upper: Option<Bound>,
) -> Result<(), (&'static str, String)> {
    let keys = [
        ("minimum", "exclusiveMinimum"),
        ("maximum", "exclusiveMaximum"),
    ];
    for ((bound, sign), keys) in [(lower, 1.0), (upper, -1.0)].into_iter().zip(keys) {
        let Some(bound) = bound else { continue };
        let mut value = bound.value;
        let mut is_exclusive = bound.is_exclusive;
        // An integer that f64 does not represent.
        if let Some(integer) = bound.integer
            && value as i128 != integer
        {
            value = if (value as i128) < integer {
                value.next_up()
            } else {
                value
            };
            is_exclusive = false;
        }
        if value > NUMBER_MAX {
            let value = value * sign;
            return Err((
                keys.0,
                format!("{value} is out of range: bounds of numbers are supported up to 10^18"),
            ));
        }
        if value < -NUMBER_MAX {
            (value, is_exclusive) = (-NUMBER_MAX, false);
        }
        let key = if is_exclusive { keys.1 } else { keys.0 };
        fields.insert(key.into(), Json::from(value * sign));
    }
    Ok(())
}

/// Sets the bounds of integers. `upper` has the opposite sign.
fn integers(
    fields: &mut Map<String, Json>,
    lower: Option<Bound>,
    upper: Option<Bound>,
) -> Result<(), (&'static str, String)> {
    let mut lower = lower.map(first_integer);
    let mut upper = upper.map(|bound| -first_integer(bound));
    if lower.is_some_and(|lower| lower >= ONE_SIDED_MAX) {
        upper = Some(upper.unwrap_or(I64_MAX));
    }
    if upper.is_some_and(|upper| upper <= -ONE_SIDED_MAX) {
        lower = Some(lower.unwrap_or(-INTEGER_MAX));
    }
    if let Some(lower) = lower {
        let bound = up(lower.max(-INTEGER_MAX));
        if bound > INTEGER_MAX {
            return Err((
                "minimum",
                format!("{lower} is out of range: integers are supported up to {INTEGER_MAX}"),
            ));
        }
        fields.insert("minimum".into(), json(bound));
    }
    if let Some(upper) = upper {
        let bound = match upper {
            I64_MAX.. => I64_MAX,
            other => -up(-other),
        };
        if bound < -INTEGER_MAX {
            return Err((
                "maximum",
                format!("{upper} is out of range: integers are supported down to -{INTEGER_MAX}"),
            ));
        }
        fields.insert("maximum".into(), json(bound));
    }
    Ok(())
}

/// Returns the least integer within a lower bound.
fn first_integer(bound: Bound) -> i128 {
    match bound.integer {
        Some(integer) => integer + i128::from(bound.is_exclusive),
        None => {
            let first = bound.value.ceil();
            let limit = 1i128 << 100;
            let next = i128::from(bound.is_exclusive && first == bound.value);
            (first as i128).clamp(-limit, limit) + next
        }
    }
}

/// Returns the least integer from `value` on that f64 represents.
fn up(value: i128) -> i128 {
    let float = value as f64;
    match (float as i128) < value {
        true => float.next_up() as i128,
        false => float as i128,
    }
}

fn json(value: i128) -> Json {
    i64::try_from(value).map_or(Json::Null, Json::from)
}

/// Returns the form of a constant that a grammar has exactly, `None` if there is none.
pub(super) fn constant(value: &Json) -> Option<Json> {
    match value {
        Json::Number(number) => {
            let Some(integer) = integer(number) else {
                return Some(value.clone());
            };
            let float = number.as_f64()?;
            // llguidance negates 64-bit integers.
            let is_exact = float as i128 == integer && integer > i128::from(i64::MIN);
            is_exact.then(|| value.clone())
        }
        Json::Array(items) => items.iter().map(constant).collect(),
        Json::Object(fields) => {
            let fields = fields.iter();
            let fields = fields.map(|(key, value)| Some((key.clone(), constant(value)?)));
            fields.collect::<Option<Map<_, _>>>().map(Json::from)
        }
        other => Some(other.clone()),
    }
}
