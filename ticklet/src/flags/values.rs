//! The types of flag values: text in, value or a one-line complaint out.

use std::collections::BTreeMap;
use std::net::IpAddr;

use components::config::{MemoryReservation, Taint, VModule, label_value_problem, qualified_name_problem};
use components::duration::GoDuration;
use components::quantity::Quantity;

/// What `--version` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Version {
    /// Nothing.
    No,
    /// The version on one line.
    Show,
    /// All that is known about the version.
    ShowRaw,
    /// To report this version to the cluster.
    ReportAs(String),
}

/// Reads every value and keeps the last.
pub(super) fn last<T>(values: &[String], read: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
    let mut kept = Err("needs a value".to_owned());
    for value in values {
        kept = Ok(read(value)?);
    }
    kept
}

/// Splits every value at commas and reads the pieces, empty ones left out.
fn each<T>(values: &[String], read: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    values.iter().flat_map(|value| value.split(',')).filter(|piece| !piece.is_empty()).map(read).collect()
}

fn want<T>(expected: &str, got: &str) -> Result<T, String> {
    let got: String = got.chars().take(80).collect();
    Err(format!("want {expected}, got {got:?}"))
}

pub(super) fn text(value: &str) -> Result<String, String> {
    Ok(value.to_owned())
}

/// A node's name as the API server takes it.
pub(super) fn node_name(value: &str) -> Result<String, String> {
    match value.trim() {
        "" if !value.is_empty() => want("a name", value),
        name => Ok(name.to_lowercase()),
    }
}

pub(super) fn boolean(value: &str) -> Result<bool, String> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => want("true or false", other),
    }
}

fn whole(value: &str, min: i64, max: i64) -> Result<i64, String> {
    let (negative, digits) = match value.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, value.strip_prefix('+').unwrap_or(value)),
    };
    let lower = digits.to_ascii_lowercase();
    let parsed = [("0x", 16), ("0o", 8), ("0b", 2)]
        .into_iter()
        .find_map(|(prefix, radix)| lower.strip_prefix(prefix).map(|digits| i128::from_str_radix(digits, radix)));
    let parsed = parsed.unwrap_or_else(|| lower.parse());
    let Some(number) = parsed.ok().filter(|_| digits.starts_with(|c: char| c.is_ascii_digit())) else {
        return want("a whole number", value);
    };
    let number = if negative { -number } else { number };
    if number < min.into() || number > max.into() {
        return Err(format!("{number} is out of range, want {min} to {max}"));
    }
    Ok(number as i64)
}

pub(super) fn int32(value: &str) -> Result<i32, String> {
    whole(value, i32::MIN.into(), i32::MAX.into()).map(|n| n as i32)
}

pub(super) fn int64(value: &str) -> Result<i64, String> {
    whole(value, i64::MIN, i64::MAX)
}

pub(super) fn level(value: &str) -> Result<u32, String> {
    whole(value, 0, i32::MAX.into()).map(|n| n as u32)
}

pub(super) fn duration(value: &str) -> Result<GoDuration, String> {
    GoDuration::parse(value).map_err(|e| format!("{value:?}: {e}"))
}

pub(super) fn quantity(value: &str) -> Result<Quantity, String> {
    Quantity::parse(value).map_err(|e| format!("{value:?}: {e}"))
}

/// An address is kept as it was written.
pub(super) fn address(value: &str) -> Result<String, String> {
    if value.parse::<IpAddr>().is_ok() { Ok(value.to_owned()) } else { want("an IP address", value) }
}

pub(super) fn list(values: &[String]) -> Result<Vec<String>, String> {
    each(values, text)
}

fn pair<'a>(piece: &'a str, separator: char, expected: &str) -> Result<(&'a str, &'a str), String> {
    match piece.split_once(separator) {
        Some((key, value)) => Ok((key.trim(), value.trim())),
        None => want(expected, piece),
    }
}

pub(super) fn map(values: &[String]) -> Result<BTreeMap<String, String>, String> {
    let read = |piece: &str| pair(piece, '=', "KEY=VALUE").map(|(k, v)| (k.to_owned(), v.to_owned()));
    Ok(each(values, read)?.into_iter().collect())
}

/// One pair for each value, so that a value may contain commas.
pub(super) fn unsplit_map(values: &[String]) -> Result<BTreeMap<String, String>, String> {
    let read = |value: &String| pair(value, '=', "KEY=VALUE").map(|(k, v)| (k.to_owned(), v.to_owned()));
    values.iter().map(read).collect()
}

pub(super) fn labels(values: &[String]) -> Result<BTreeMap<String, String>, String> {
    let read = |piece: &str| {
        let (key, value) = piece.split_once('=').unwrap_or((piece, ""));
        Ok((key.trim().to_owned(), value.trim().to_owned()))
    };
    Ok(each(values, read)?.into_iter().collect())
}

pub(super) fn thresholds(values: &[String]) -> Result<BTreeMap<String, String>, String> {
    let read = |piece: &str| pair(piece, '<', "SIGNAL<AMOUNT").map(|(k, v)| (k.to_owned(), v.to_owned()));
    Ok(each(values, read)?.into_iter().collect())
}

pub(super) fn gates(values: &[String]) -> Result<BTreeMap<String, bool>, String> {
    const EXPECTED: &str = "NAME=true or NAME=false";
    let read = |piece: &str| {
        let (name, value) = pair(piece, '=', EXPECTED)?;
        Ok((name.to_owned(), boolean(value).or_else(|_| want(EXPECTED, piece))?))
    };
    Ok(each(values, read)?.into_iter().collect())
}

/// The header values are secret and stay out of the complaint.
pub(super) fn headers(values: &[String]) -> Result<BTreeMap<String, Vec<String>>, String> {
    let read = |piece: &str| match piece.split_once(':') {
        Some((key, value)) => Ok((key.trim().to_owned(), value.trim().to_owned())),
        None => Err("want NAME:VALUE, separated by commas".to_owned()),
    };
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (key, value) in each(values, read)? {
        headers.entry(key).or_default().push(value);
    }
    Ok(headers)
}

/// Each value replaces the one before.
pub(super) fn taints(values: &[String]) -> Result<Vec<Taint>, String> {
    last(values, |value| {
        let mut taints: Vec<Taint> = Vec::new();
        for piece in value.split(',').filter(|_| !value.is_empty()) {
            let taint = taint(piece)?;
            if taints.iter().any(|other| other.key == taint.key && other.effect == taint.effect) {
                return Err(format!("the taint {}:{} is listed twice", taint.key, taint.effect));
            }
            taints.push(taint);
        }
        Ok(taints)
    })
}

fn taint(piece: &str) -> Result<Taint, String> {
    let parsed = piece.split_once(':').map(|(name, effect)| {
        let (key, value) = name.split_once('=').unwrap_or((name, ""));
        Taint { key: key.to_owned(), value: value.to_owned(), effect: effect.to_owned(), time_added: None }
    });
    let fits = |t: &Taint| {
        matches!(t.effect.as_str(), "NoSchedule" | "PreferNoSchedule" | "NoExecute")
            && qualified_name_problem(&t.key).is_none()
            && label_value_problem(&t.value).is_none()
    };
    match parsed.filter(fits) {
        Some(taint) => Ok(taint),
        None => want("KEY=VALUE:EFFECT with NoSchedule, PreferNoSchedule or NoExecute", piece),
    }
}

pub(super) fn reservations(values: &[String]) -> Result<Vec<MemoryReservation>, String> {
    let pieces = values.iter().flat_map(|value| value.split(';')).filter(|piece| !piece.is_empty());
    pieces.map(|piece| reservation(piece).or_else(|()| want("NUMA-CELL:TYPE=AMOUNT", piece))).collect()
}

fn reservation(piece: &str) -> Result<MemoryReservation, ()> {
    let (cell, limits) = piece.split_once(':').ok_or(())?;
    let limit = |text: &str| {
        let (name, amount) = text.split_once('=').ok_or(())?;
        Ok((name.to_owned(), Quantity::parse(amount).map_err(|_| ())?))
    };
    let limits = limits.split(',').map(limit).collect::<Result<_, ()>>()?;
    Ok(MemoryReservation { numa_node: cell.parse().map_err(|_| ())?, limits })
}

pub(super) fn vmodule(values: &[String]) -> Result<Vec<VModule>, String> {
    each(values, |piece| {
        let (pattern, verbosity) = pair(piece, '=', "PATTERN=LEVEL")?;
        if pattern.is_empty() {
            return want("PATTERN=LEVEL", piece);
        }
        Ok(VModule { file_pattern: pattern.to_owned(), verbosity: level(verbosity)? })
    })
}

pub(super) fn version(value: &str) -> Result<Version, String> {
    if value == "raw" {
        return Ok(Version::ShowRaw);
    }
    if value.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        return Ok(Version::ReportAs(value.to_owned()));
    }
    match boolean(value) {
        Ok(true) => Ok(Version::Show),
        Ok(false) => Ok(Version::No),
        Err(_) => want("true, raw or a version such as v1.37.2", value),
    }
}
