//! Eviction signals and thresholds as the configuration spells them.

use crate::config::decode::quote;
use crate::quantity::Quantity;

/// Every signal that a threshold may be set for.
pub const SIGNALS: [&str; 9] = [
    "allocatableMemory.available",
    "containerfs.available",
    "containerfs.inodesFree",
    "imagefs.available",
    "imagefs.inodesFree",
    "memory.available",
    "nodefs.available",
    "nodefs.inodesFree",
    "pid.available",
];

/// How much must be left of a resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// A part of the capacity, from 0 to 1.
    Fraction(f32),
    /// An amount.
    Amount(Quantity),
}

/// Whether the kubelet knows the signal.
#[must_use]
pub fn is_signal(signal: &str) -> bool {
    SIGNALS.contains(&signal)
}

/// Reads a threshold; `0%` and `100%` mean that the signal is not watched.
pub fn parse_threshold(text: &str) -> Result<Option<Threshold>, String> {
    if text == "0%" || text == "100%" {
        return Ok(None);
    }
    if text.ends_with('%') {
        return Ok(Some(Threshold::Fraction(parse_percentage(text)?)));
    }
    let amount = Quantity::parse(text).map_err(|e| format!("{}: {e}", quote(text)))?;
    if amount.is_negative() || amount.is_zero() {
        return Err(format!("{}: must be greater than zero", quote(text)));
    }
    Ok(Some(Threshold::Amount(amount)))
}

/// Reads what an eviction must free at least; here zero is fine.
pub fn parse_minimum_reclaim(text: &str) -> Result<Threshold, String> {
    if text.ends_with('%') {
        return Ok(Threshold::Fraction(parse_percentage(text)?));
    }
    let amount = Quantity::parse(text).map_err(|e| format!("{}: {e}", quote(text)))?;
    if amount.is_negative() {
        return Err(format!("{}: must not be negative", quote(text)));
    }
    Ok(Threshold::Amount(amount))
}

fn parse_percentage(text: &str) -> Result<f32, String> {
    let number = text.trim_end_matches('%').parse::<f32>().ok().filter(|n| n.is_finite());
    let number = number.ok_or_else(|| format!("{}: want a number before the percent sign", quote(text)))?;
    if !(0.0..=100.0).contains(&number) {
        return Err(format!("{}: must be between 0% and 100%", quote(text)));
    }
    Ok(number / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds() {
        assert_eq!(parse_threshold("10%"), Ok(Some(Threshold::Fraction(0.1))));
        assert_eq!(parse_threshold("0%"), Ok(None));
        assert_eq!(parse_threshold("100%"), Ok(None));
        let amount = Quantity::parse("100Mi").unwrap();
        assert_eq!(parse_threshold("100Mi"), Ok(Some(Threshold::Amount(amount))));
        for bad in ["", "0", "-1Mi", "101%", "-5%", "x%", "%", "NaN%", "1.5X"] {
            assert!(parse_threshold(bad).is_err(), "{bad}");
        }
        assert!(parse_minimum_reclaim("0").is_ok() && parse_minimum_reclaim("-1").is_err());
    }
}
