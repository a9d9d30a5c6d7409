//! Splits arguments into flags and their values, the way the kubelet's flag library does.

use components::config::{Problem, tree::Origin};

use super::table::{self, Flag};

/// A flag that was given, with all its values in order.
#[derive(Clone, Debug)]
pub(super) struct Given {
    pub(super) flag: &'static Flag,
    pub(super) values: Vec<String>,
}

/// Reads the arguments; `_` in a name counts as `-`.
pub(super) fn parse(args: &[String]) -> Result<Vec<Given>, Vec<Problem>> {
    let mut given: Vec<Given> = Vec::new();
    let mut problems = Vec::new();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut take = |flag: &'static Flag, value: Option<&str>| {
            let value = value.map(str::to_owned).or_else(|| flag.bare_value().map(str::to_owned));
            match value.or_else(|| rest.next().cloned()) {
                Some(value) => add(&mut given, flag, value),
                None => problems.push(complain(&format!("--{}", flag.name), "needs a value")),
            }
        };
        if arg == "--" {
            problems.extend(rest.next().map(|word| complain(word, "unknown command, see --help")));
            break;
        }
        if let Some(text) = arg.strip_prefix("--") {
            let (name, value) = split(text);
            match table::find(&name.replace('_', "-")) {
                Some(flag) => take(flag, value),
                None => problems.push(complain(&format!("--{name}"), "unknown flag, see --help")),
            }
        } else if let Some(text) = arg.strip_prefix('-').filter(|text| !text.is_empty()) {
            let (short, value) = split_short(text);
            match table::find_short(short) {
                Some(flag) => take(flag, value),
                None => problems.push(complain(&format!("-{short}"), "unknown flag, see --help")),
            }
        } else {
            problems.push(complain(arg, "unknown command, see --help"));
            break;
        }
    }
    if problems.is_empty() { Ok(given) } else { Err(problems) }
}

fn add(given: &mut Vec<Given>, flag: &'static Flag, value: String) {
    match given.iter_mut().find(|g| g.flag.name == flag.name) {
        Some(earlier) => earlier.values.push(value),
        None => given.push(Given { flag, values: vec![value] }),
    }
}

fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value)))
}

/// `v4` and `v=4` both mean the value 4 of the flag v.
fn split_short(text: &str) -> (char, Option<&str>) {
    let mut chars = text.chars();
    let short = chars.next().unwrap_or_default();
    let value = chars.as_str();
    (short, (!value.is_empty()).then(|| value.strip_prefix('=').unwrap_or(value)))
}

fn complain(argument: &str, message: &str) -> Problem {
    let shown: String = argument.chars().filter(|c| !c.is_control()).take(80).collect();
    Problem { at: Origin::whole(&shown), field: String::new(), message: message.to_owned() }
}
