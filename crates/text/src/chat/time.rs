//! `strftime_now`: the date in UTC, with the directives that templates use.

use std::fmt::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

/// A calendar date and time.
struct Date {
    year: u64,
    /// 0 to 11.
    month: usize,
    /// From 1.
    day: u64,
    /// 0 to 6, 0 is Sunday.
    weekday: usize,
    /// From 1.
    yearday: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Date {
    fn of(time: SystemTime) -> Self {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        let mut day = seconds / 86_400;
        // 1970-01-01 was a Thursday.
        let weekday = usize::try_from((day + 4) % 7).unwrap_or(0);
        let mut year = 1970;
        let leap = |year: u64| {
            year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
        };
        let days = |year: u64| if leap(year) { 366 } else { 365 };
        while day >= days(year) && year < 9999 {
            day -= days(year);
            year += 1;
        }
        let yearday = day + 1;
        let february = if leap(year) { 29 } else { 28 };
        let mut month = 0;
        for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
            if day < length {
                break;
            }
            day -= length;
            month += 1;
        }
        Self {
            year,
            month,
            day: day + 1,
            weekday,
            yearday,
            hour: seconds / 3600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
        }
    }

    /// Writes a directive; `None` for an unknown one.
    fn directive(&self, c: char, out: &mut String) -> Option<fmt::Result> {
        let hour12 = (self.hour + 11) % 12 + 1;
        Some(match c {
            'Y' => write!(out, "{}", self.year),
            'y' => write!(out, "{:02}", self.year % 100),
            'm' => write!(out, "{:02}", self.month + 1),
            'd' => write!(out, "{:02}", self.day),
            'e' => write!(out, "{:2}", self.day),
            'B' => out.write_str(MONTHS[self.month]),
            'b' => out.write_str(&MONTHS[self.month][..3]),
            'A' => out.write_str(DAYS[self.weekday]),
            'a' => out.write_str(&DAYS[self.weekday][..3]),
            'j' => write!(out, "{:03}", self.yearday),
            'H' => write!(out, "{:02}", self.hour),
            'I' => write!(out, "{hour12:02}"),
            'M' => write!(out, "{:02}", self.minute),
            'S' => write!(out, "{:02}", self.second),
            'p' => out.write_str(if self.hour < 12 { "AM" } else { "PM" }),
            'F' => write!(out, "{}-{:02}-{:02}", self.year, self.month + 1, self.day),
            'T' => write!(
                out,
                "{:02}:{:02}:{:02}",
                self.hour, self.minute, self.second
            ),
            'Z' => out.write_str("UTC"),
            'z' => out.write_str("+0000"),
            '%' => out.write_str("%"),
            _ => return None,
        })
    }
}

/// `datetime.strftime`; the error is the unknown directive. `%-d` omits the leading zero.
pub(super) fn strftime(time: SystemTime, format: &str) -> Result<String, String> {
    let date = Date::of(time);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut directive = chars.next().unwrap_or(' ');
        let short = directive == '-';
        if short {
            directive = chars.next().unwrap_or(' ');
        }
        let start = out.len();
        let known = date.directive(directive, &mut out);
        if known.is_none_or(|written| written.is_err()) {
            return Err(format!("%{directive}"));
        }
        if short && out[start..].len() > 1 && out[start..].starts_with('0') {
            out.remove(start);
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn check(seconds: u64, format: &str, expected: &str) {
        let time = UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(strftime(time, format).as_deref(), Ok(expected), "{seconds}");
    }

    #[test]
    fn formats_known_dates() {
        check(
            0,
            "%A %d %B %Y %H:%M:%S %j",
            "Thursday 01 January 1970 00:00:00 001",
        );
        check(951_782_400, "%d %b %Y", "29 Feb 2000");
        check(
            1_735_689_599,
            "%Y-%m-%d %j %I:%M %p",
            "2024-12-31 366 11:59 PM",
        );
        check(
            1_722_470_400,
            "%B %-d, %Y, %a %y %%",
            "August 1, 2024, Thu 24 %",
        );
    }

    #[test]
    fn reports_unknown_directive() {
        assert_eq!(strftime(UNIX_EPOCH, "%Q"), Err("%Q".to_string()));
        assert_eq!(strftime(UNIX_EPOCH, "%"), Err("% ".to_string()));
    }
}
