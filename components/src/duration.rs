//! Signed durations in the `1h2m3.5s` syntax that every Kubernetes configuration uses.
//!
//! Decides nothing; parses and prints. The range is that of 64-bit nanoseconds, about 292 years either way.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const MICROSECOND: i64 = 1_000;
const MILLISECOND: i64 = 1_000_000;
const SECOND: i64 = 1_000_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// A signed duration in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GoDuration(pub i64);

/// Why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// No number where one must be.
    #[error("not a duration: want numbers with units, such as 300ms, 1m30s or 2h")]
    Malformed,
    /// A number without a unit.
    #[error("missing unit in duration: want ns, us, ms, s, m or h after each number")]
    MissingUnit,
    /// Letters that are no unit.
    #[error("unknown unit in duration: want ns, us, ms, s, m or h")]
    UnknownUnit,
    /// More than 292 years.
    #[error("duration is out of range")]
    OutOfRange,
}

impl GoDuration {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// Whole milliseconds.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis * MILLISECOND)
    }

    /// Whole seconds.
    #[must_use]
    pub const fn from_secs(secs: i64) -> Self {
        Self(secs * SECOND)
    }

    /// Whole minutes.
    #[must_use]
    pub const fn from_mins(mins: i64) -> Self {
        Self(mins * MINUTE)
    }

    /// Whether it is exactly zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// As an unsigned duration; below zero counts as zero.
    #[must_use]
    pub const fn to_std(self) -> Duration {
        Duration::from_nanos(if self.0 < 0 { 0 } else { self.0.unsigned_abs() })
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self, DurationError> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self::ZERO);
        }
        if rest.is_empty() {
            return Err(DurationError::Malformed);
        }
        let limit = if negative { i64::MIN.unsigned_abs() } else { i64::MAX.unsigned_abs() };
        let mut total: u64 = 0;
        let mut rest = rest;
        while !rest.is_empty() {
            let (part, tail) = parse_part(rest)?;
            total = total.checked_add(part).filter(|sum| *sum <= limit).ok_or(DurationError::OutOfRange)?;
            rest = tail;
        }
        Ok(Self(if negative { (total as i64).wrapping_neg() } else { total as i64 }))
    }
}

/// Reads one number with its unit; returns its nanoseconds and what follows.
fn parse_part(text: &str) -> Result<(u64, &str), DurationError> {
    let number_len = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, rest) = text.split_at(number_len);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return Err(DurationError::Malformed);
    }
    let unit_len = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, tail) = rest.split_at(unit_len);
    let unit = match unit {
        "" => return Err(DurationError::MissingUnit),
        "ns" => 1,
        "us" | "µs" | "μs" => MICROSECOND,
        "ms" => MILLISECOND,
        "s" => SECOND,
        "m" => MINUTE,
        "h" => HOUR,
        _ => return Err(DurationError::UnknownUnit),
    };
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u64>().map_err(|_| DurationError::OutOfRange)? };
    let whole = whole.checked_mul(unit.unsigned_abs()).ok_or(DurationError::OutOfRange)?;
    whole.checked_add(fraction_nanos(fraction, unit)).map(|nanos| (nanos, tail)).ok_or(DurationError::OutOfRange)
}

/// The nanoseconds of a decimal fraction of `unit`, cut off below one.
fn fraction_nanos(fraction: &str, unit: i64) -> u64 {
    let (mut numerator, mut denominator) = (0u128, 1u128);
    // Beyond 18 digits a fraction of an hour no longer reaches a nanosecond.
    for digit in fraction.bytes().take(18) {
        numerator = numerator * 10 + u128::from(digit - b'0');
        denominator *= 10;
    }
    (numerator * u128::from(unit.unsigned_abs()) / denominator) as u64
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let second = SECOND.unsigned_abs();
        match nanos {
            0 => f.write_str("0s"),
            n if n < MICROSECOND.unsigned_abs() => write!(f, "{n}ns"),
            n if n < MILLISECOND.unsigned_abs() => write!(f, "{}µs", Decimal(n, 3)),
            n if n < second => write!(f, "{}ms", Decimal(n, 6)),
            _ => {
                let (minutes, rest) = (nanos / MINUTE.unsigned_abs(), nanos % MINUTE.unsigned_abs());
                if minutes >= 60 {
                    write!(f, "{}h", minutes / 60)?;
                }
                if minutes > 0 {
                    write!(f, "{}m", minutes % 60)?;
                }
                write!(f, "{}s", Decimal(rest, 9))
            }
        }
    }
}

/// A number with its last `.1` digits behind the point, trailing zeros dropped.
struct Decimal(u64, u32);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let base = 10u64.pow(self.1);
        write!(f, "{}", self.0 / base)?;
        let fraction = self.0 % base;
        if fraction == 0 {
            return Ok(());
        }
        let digits = format!("{fraction:0width$}", width = self.1 as usize);
        write!(f, ".{}", digits.trim_end_matches('0'))
    }
}

impl FromStr for GoDuration {
    type Err = DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        Self::parse(&text).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, nanos: i64, printed: &str) {
        let d = GoDuration::parse(input).unwrap();
        assert_eq!((d.0, d.to_string().as_str()), (nanos, printed), "{input}");
        assert_eq!(GoDuration::parse(printed).unwrap(), d, "{input}: printed form reads back");
    }

    #[test]
    fn forms() {
        check("0", 0, "0s");
        check("-0", 0, "0s");
        check("0s", 0, "0s");
        check("7ns", 7, "7ns");
        check("1us", 1_000, "1µs");
        check("1.5µs", 1_500, "1.5µs");
        check("20ms", 20 * MILLISECOND, "20ms");
        check("1000ms", SECOND, "1s");
        check("1.001s", SECOND + MILLISECOND, "1.001s");
        check(".5s", SECOND / 2, "500ms");
        check("2.s", 2 * SECOND, "2s");
        check("60s", MINUTE, "1m0s");
        check("1m", MINUTE, "1m0s");
        check("90s", 90 * SECOND, "1m30s");
        check("2h", 2 * HOUR, "2h0m0s");
        check("1h15m30.25s", HOUR + 15 * MINUTE + 30 * SECOND + SECOND / 4, "1h15m30.25s");
        check("30m1h", HOUR + 30 * MINUTE, "1h30m0s");
        check("-1m30s", -90 * SECOND, "-1m30s");
        check("+4s", 4 * SECOND, "4s");
        check("1.0000000005s", SECOND, "1s");
        check("0.123456789012345678h", 444_444_440_444, "7m24.444440444s");
        check("9223372036854775807ns", i64::MAX, "2562047h47m16.854775807s");
        check("-9223372036854775808ns", i64::MIN, "-2562047h47m16.854775808s");
    }

    #[test]
    fn refusals() {
        use DurationError::{Malformed, MissingUnit, OutOfRange, UnknownUnit};
        for (input, error) in [
            ("", Malformed),
            ("-", Malformed),
            ("s", Malformed),
            (".s", Malformed),
            ("1..5s", Malformed),
            ("--1s", Malformed),
            ("10", MissingUnit),
            ("1m30", MissingUnit),
            ("1d", UnknownUnit),
            ("1 s", UnknownUnit),
            ("5S", UnknownUnit),
            ("9223372036854775808ns", OutOfRange),
            ("99999999999999999999s", OutOfRange),
            ("3000000h", OutOfRange),
        ] {
            assert_eq!(GoDuration::parse(input), Err(error), "{input:?}");
        }
    }

    #[test]
    fn json_is_a_string() {
        assert_eq!(serde_json::to_string(&GoDuration::from_mins(5)).unwrap(), "\"5m0s\"");
        assert_eq!(serde_json::from_str::<GoDuration>("\"250ms\"").unwrap(), GoDuration::from_millis(250));
        assert!(serde_json::from_str::<GoDuration>("10").is_err());
    }

    #[test]
    fn negative_counts_as_no_time() {
        assert_eq!(GoDuration::from_secs(-3).to_std(), Duration::ZERO);
        assert_eq!(GoDuration::from_millis(1500).to_std(), Duration::from_millis(1500));
    }
}
