//! Kubernetes resource quantities: exact parsing, canonical printing and arithmetic.
//!
//! Decides nothing; reads and writes the text form that manifests, the KubeletConfiguration and the API use.
//! A value is held as a whole number of nano units, the finest step the API knows: one 128-bit integer
//! covers every amount up to 10^29 exactly, so there is no second, slower representation.

mod digits;

use std::cmp::Ordering;
use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use self::digits::Digits;

const NANOS_PER_UNIT: i128 = 1_000_000_000;
const NANOS_PER_MILLI: i128 = 1_000_000;
/// The API caps binary amounts at the largest signed 64-bit integer.
const BINARY_CAP: i128 = i64::MAX as i128 * NANOS_PER_UNIT;

/// The family of suffixes in which a quantity was written and will be printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// `n u m k M G T P E`: powers of 1000.
    #[default]
    DecimalSi,
    /// `Ki Mi Gi Ti Pi Ei`: powers of 1024.
    BinarySi,
    /// `e3`, `E6`: an explicit power of ten.
    DecimalExponent,
}

/// An amount of a resource.
#[derive(Clone, Copy, Default)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// Why a text is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Nothing but blanks.
    #[error("a quantity must not be empty")]
    Empty,
    /// Not a number with an optional suffix.
    #[error("not a quantity: want a number with an optional suffix such as m, k, Mi or e3")]
    Malformed,
    /// The number is followed by letters that are no suffix.
    #[error("unknown quantity suffix: want one of n u m k M G T P E, Ki Mi Gi Ti Pi Ei, or an exponent such as e3")]
    Suffix,
    /// More than 10^29.
    #[error("quantity is too large")]
    TooLarge,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nanos: 0, format: Format::DecimalSi };

    /// A whole number of units.
    #[must_use]
    pub const fn from_units(units: i64, format: Format) -> Self {
        Self { nanos: units as i128 * NANOS_PER_UNIT, format }
    }

    /// A number of thousandths, the usual way to state CPU.
    #[must_use]
    pub const fn from_milli(milli: i64, format: Format) -> Self {
        Self { nanos: milli as i128 * NANOS_PER_MILLI, format }
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(QuantityError::Empty);
        }
        let (negative, rest) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let number_len = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, suffix) = rest.split_at(number_len);
        let digits = Digits::parse(number).ok_or(QuantityError::Malformed)?;
        let (scale, mut format) = parse_suffix(suffix)?;
        let nanos = match scale {
            Scale::Ten(power) => digits.nanos(power),
            Scale::Two(power) => digits.times_power_of_two(power).nanos(0),
        };
        let nanos = match (nanos, format) {
            (Some(nanos), Format::BinarySi) => nanos.min(BINARY_CAP),
            (None, Format::BinarySi) => BINARY_CAP,
            (Some(nanos), _) => nanos,
            (None, _) => return Err(QuantityError::TooLarge),
        };
        if format == Format::BinarySi && nanos > 0 && nanos < NANOS_PER_UNIT {
            format = Format::DecimalSi;
        }
        Ok(Self { nanos: if negative { -nanos } else { nanos }, format })
    }

    /// Whole units, any fraction rounded away from zero; saturates at the ends of `i64`.
    #[must_use]
    pub fn value(self) -> i64 {
        self.scaled(NANOS_PER_UNIT)
    }

    /// Thousandths, any finer fraction rounded away from zero; saturates at the ends of `i64`.
    #[must_use]
    pub fn milli_value(self) -> i64 {
        self.scaled(NANOS_PER_MILLI)
    }

    /// The amount as a float, for ratios and metrics.
    #[must_use]
    pub fn as_f64(self) -> f64 {
        self.nanos as f64 / NANOS_PER_UNIT as f64
    }

    /// The suffix family used when printing.
    #[must_use]
    pub const fn format(self) -> Format {
        self.format
    }

    /// Whether the amount is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether the amount is below zero.
    #[must_use]
    pub const fn is_negative(self) -> bool {
        self.nanos < 0
    }

    fn scaled(self, step: i128) -> i64 {
        let whole = self.nanos / step;
        let rounded = if self.nanos % step == 0 { whole } else { whole + self.nanos.signum() };
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }

    /// A sum keeps the format of its first non-zero term.
    fn combine(self, nanos: i128, other: Self) -> Self {
        Self { nanos, format: if self.is_zero() { other.format } else { self.format } }
    }
}

enum Scale {
    Ten(i64),
    Two(u32),
}

fn parse_suffix(suffix: &str) -> Result<(Scale, Format), QuantityError> {
    let decimal = |power| Ok((Scale::Ten(power), Format::DecimalSi));
    let binary = |power| Ok((Scale::Two(power), Format::BinarySi));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E']).ok_or(QuantityError::Suffix)?;
            let power = exponent.parse::<i32>().map_err(|_| QuantityError::Suffix)?;
            Ok((Scale::Ten(i64::from(power)), Format::DecimalExponent))
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        let whole = self.nanos % NANOS_PER_UNIT == 0;
        let small = self.nanos.abs() < 1024 * NANOS_PER_UNIT;
        if self.format == Format::BinarySi && whole && !small {
            return print_binary(self.nanos / NANOS_PER_UNIT, f);
        }
        print_decimal(self.nanos, self.format == Format::DecimalExponent, f)
    }
}

fn print_binary(mut units: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut step = 0;
    while units % 1024 == 0 && step + 1 < SUFFIXES.len() {
        units /= 1024;
        step += 1;
    }
    write!(f, "{units}{}", SUFFIXES[step])
}

fn print_decimal(mut mantissa: i128, exponent_form: bool, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
    let mut step = 0;
    while mantissa % 1000 == 0 && (exponent_form || step + 1 < SUFFIXES.len()) {
        mantissa /= 1000;
        step += 1;
    }
    if !exponent_form {
        return write!(f, "{mantissa}{}", SUFFIXES[step]);
    }
    match 3 * step as i64 - 9 {
        0 => write!(f, "{mantissa}"),
        exponent => write!(f, "{mantissa}e{exponent}"),
    }
}

impl fmt::Debug for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Quantity({self})")
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl std::hash::Hash for Quantity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.combine(self.nanos.saturating_add(other.nanos), other)
    }
}

impl Sub for Quantity {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        self.combine(self.nanos.saturating_sub(other.nanos), other)
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for Quantity {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl Neg for Quantity {
    type Output = Self;

    fn neg(self) -> Self {
        Self { nanos: -self.nanos, format: self.format }
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Quantity {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrNumber)
    }
}

struct TextOrNumber;

impl Visitor<'_> for TextOrNumber {
    type Value = Quantity;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quantity such as 500m, 2 or 1Gi")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Quantity, E> {
        Quantity::parse(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, units: i64) -> Result<Quantity, E> {
        Ok(Quantity::from_units(units, Format::DecimalSi))
    }

    fn visit_u64<E: de::Error>(self, units: u64) -> Result<Quantity, E> {
        Ok(Quantity { nanos: i128::from(units) * NANOS_PER_UNIT, format: Format::DecimalSi })
    }

    fn visit_f64<E: de::Error>(self, units: f64) -> Result<Quantity, E> {
        Quantity::parse(&units.to_string()).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, canonical: &str, value: i64, milli: i64) {
        let q = Quantity::parse(input).unwrap();
        assert_eq!((q.to_string().as_str(), q.value(), q.milli_value()), (canonical, value, milli), "{input}");
        assert_eq!(Quantity::parse(canonical).unwrap(), q, "{input}: canonical form reads back");
    }

    #[test]
    fn decimal_forms() {
        check("0", "0", 0, 0);
        check("-0", "0", 0, 0);
        check("0.0Gi", "0", 0, 0);
        check("1", "1", 1, 1000);
        check("+7", "7", 7, 7000);
        check("0012", "12", 12, 12_000);
        check("1.", "1", 1, 1000);
        check(".5", "500m", 1, 500);
        check("0.25", "250m", 1, 250);
        check("1500m", "1500m", 2, 1500);
        check("2000m", "2", 2, 2000);
        check("100n", "100n", 1, 1);
        check("1000000u", "1", 1, 1000);
        check("3k", "3k", 3000, 3_000_000);
        check("3000", "3k", 3000, 3_000_000);
        check("1.5G", "1500M", 1_500_000_000, 1_500_000_000_000);
        check("9E", "9E", 9_000_000_000_000_000_000, i64::MAX);
        check("-250m", "-250m", -1, -250);
        check("-3k", "-3k", -3000, -3_000_000);
    }

    #[test]
    fn binary_forms() {
        check("1Ki", "1Ki", 1024, 1_024_000);
        check("1000Ki", "1000Ki", 1_024_000, 1_024_000_000);
        check("1024Ki", "1Mi", 1 << 20, 1_048_576_000);
        check("0.5Gi", "512Mi", 1 << 29, (1 << 29) * 1000);
        check("1.5Gi", "1536Mi", 3 << 29, (3 << 29) * 1000);
        check("0.5Ki", "512", 512, 512_000);
        check("0.1Mi", "104857600m", 104_858, 104_857_600);
        check("1023", "1023", 1023, 1_023_000);
        check("-2Mi", "-2Mi", -(2 << 20), -2_097_152_000);
        check("7Ei", "7Ei", 7 << 60, i64::MAX);
        // Binary amounts stop at the largest 64-bit integer.
        check("8Ei", "9223372036854775807", i64::MAX, i64::MAX);
        check("99999999999999999999Ei", "9223372036854775807", i64::MAX, i64::MAX);
    }

    #[test]
    fn exponent_forms() {
        check("1e3", "1e3", 1000, 1_000_000);
        check("1E3", "1e3", 1000, 1_000_000);
        check("12e0", "12", 12, 12_000);
        check("1500e-3", "1500e-3", 2, 1500);
        check("10e2", "1e3", 1000, 1_000_000);
        check("1e-2", "10e-3", 1, 10);
        check("5e+6", "5e6", 5_000_000, 5_000_000_000);
        check("1e21", "1e21", i64::MAX, i64::MAX);
    }

    #[test]
    fn fractions_below_a_nano_round_up() {
        check("0.0000000001", "1n", 1, 1);
        check("1.0000000001", "1000000001n", 2, 1001);
        check("1e-100", "1e-9", 1, 1);
        check("-0.0000000001", "-1n", -1, -1);
    }

    #[track_caller]
    fn refuse(input: &str, error: QuantityError) {
        assert_eq!(Quantity::parse(input), Err(error), "{input}");
    }

    #[test]
    fn refusals() {
        refuse("", QuantityError::Empty);
        refuse("  ", QuantityError::Empty);
        refuse("+", QuantityError::Malformed);
        refuse(".", QuantityError::Malformed);
        refuse("Mi", QuantityError::Malformed);
        refuse("1.2.3", QuantityError::Malformed);
        refuse("--1", QuantityError::Malformed);
        refuse("1ki", QuantityError::Suffix);
        refuse("1K", QuantityError::Suffix);
        refuse("1 Gi", QuantityError::Suffix);
        refuse("1Mb", QuantityError::Suffix);
        refuse("1e", QuantityError::Suffix);
        refuse("1e3Mi", QuantityError::Suffix);
        refuse("1e99999999999", QuantityError::Suffix);
        refuse("1e30", QuantityError::TooLarge);
        refuse("½", QuantityError::Malformed);
    }

    #[test]
    fn arithmetic_and_order() {
        let q = |text| Quantity::parse(text).unwrap();
        assert_eq!((q("1Gi") + q("512Mi")).to_string(), "1536Mi");
        assert_eq!((q("0") + q("1Gi")).to_string(), "1Gi");
        assert_eq!((q("1") + q("1Gi")).to_string(), "1073741825");
        assert_eq!((q("1") - q("1500m")).to_string(), "-500m");
        assert_eq!((-q("3Mi")).to_string(), "-3Mi");
        assert_eq!([q("100m"), q("0.2"), q("1")].into_iter().sum::<Quantity>().to_string(), "1300m");
        assert!(q("1024Mi") == q("1Gi") && q("1G") < q("1Gi") && q("-1") < q("0"));
    }

    #[test]
    fn json_text_and_numbers() {
        let read = |json: &str| serde_json::from_str::<Quantity>(json).map(|q| serde_json::to_string(&q).unwrap());
        assert_eq!(read("\"1024Mi\"").unwrap(), "\"1Gi\"");
        assert_eq!(read("3").unwrap(), "\"3\"");
        assert_eq!(read("0.5").unwrap(), "\"500m\"");
        assert_eq!(read("18446744073709551615").unwrap(), "\"18446744073709551615\"");
        assert!(read("true").is_err() && read("\"1x\"").is_err());
    }
}
