//! Collects everything that is wrong with an object, each with the path of its field.

use std::fmt::Write as _;

/// At most this many are kept; a hostile manifest must not fill the log.
const MAX_ISSUES: usize = 50;
/// At most this many characters of a value are shown.
const MAX_VALUE: usize = 80;

/// What was found wrong.
#[derive(Default)]
pub(super) struct Issues {
    list: Vec<String>,
    more: usize,
}

impl Issues {
    /// A field that must be set is not.
    pub(super) fn required(&mut self, path: &str, detail: &str) {
        let detail = if detail.is_empty() { String::new() } else { format!(": {detail}") };
        self.add(format!("{path}: Required value{detail}"));
    }

    /// A value breaks a rule.
    pub(super) fn invalid(&mut self, path: &str, value: impl std::fmt::Display, detail: &str) {
        self.add(format!("{path}: Invalid value: {}: {detail}", shown(&value.to_string())));
    }

    /// A value occurs twice where it may not.
    pub(super) fn duplicate(&mut self, path: &str, value: &str) {
        self.add(format!("{path}: Duplicate value: {}", shown(value)));
    }

    /// A value is none of a fixed set.
    pub(super) fn unsupported(&mut self, path: &str, value: &str, supported: &[&str]) {
        let mut list = String::new();
        for name in supported {
            let _ = write!(list, "{}{name:?}", if list.is_empty() { "" } else { ", " });
        }
        self.add(format!("{path}: Unsupported value: {}: supported values: {list}", shown(value)));
    }

    /// A field may not be set here.
    pub(super) fn forbidden(&mut self, path: &str, detail: &str) {
        self.add(format!("{path}: Forbidden: {detail}"));
    }

    /// A reference leads nowhere.
    pub(super) fn not_found(&mut self, path: &str, value: &str) {
        self.add(format!("{path}: Not found: {}", shown(value)));
    }

    fn add(&mut self, issue: String) {
        if self.list.len() < MAX_ISSUES { self.list.push(issue) } else { self.more += 1 }
    }

    /// Everything found, in order.
    pub(super) fn into_list(mut self) -> Vec<String> {
        if self.more > 0 {
            self.list.push(format!("and {} more", self.more));
        }
        self.list
    }
}

fn shown(value: &str) -> String {
    if value.chars().count() <= MAX_VALUE {
        return format!("{value:?}");
    }
    let cut: String = value.chars().take(MAX_VALUE).collect();
    format!("{cut:?}…")
}
