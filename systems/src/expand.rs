//! `$(NAME)` references in commands, arguments, environment values and sub-paths (contract 3.8).
//!
//! One pass from left to right; nothing that was put in is expanded again. Reads only its arguments.

/// Replaces each `$(NAME)` that `lookup` knows; an unknown one stays as it is written, `$$` gives one `$`.
#[must_use]
pub fn expand<'v>(text: &str, mut lookup: impl FnMut(&str) -> Option<&'v str>) -> String {
    let mut out = String::with_capacity(text.len());
    walk(text, |part| match part {
        Part::Text(text) => out.push_str(text),
        Part::Reference(name) => match lookup(name) {
            Some(value) => out.push_str(value),
            None => {
                out.push_str("$(");
                out.push_str(name);
                out.push(')');
            }
        },
    });
    out
}

/// As [`expand`], but an unknown reference is an error.
///
/// # Errors
/// The first name that `lookup` does not know.
pub fn expand_known<'v>(text: &str, mut lookup: impl FnMut(&str) -> Option<&'v str>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut missing = None;
    walk(text, |part| match part {
        Part::Text(text) => out.push_str(text),
        Part::Reference(name) => match lookup(name) {
            Some(value) => out.push_str(value),
            None => missing = missing.take().or_else(|| Some(name.to_owned())),
        },
    });
    missing.map_or(Ok(out), Err)
}

enum Part<'t> {
    Text(&'t str),
    Reference(&'t str),
}

fn walk<'t>(text: &'t str, mut emit: impl FnMut(Part<'t>)) {
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        emit(Part::Text(&rest[..at]));
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            emit(Part::Text("$"));
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            emit(Part::Reference(name));
            rest = tail;
        } else {
            emit(Part::Text("$"));
            rest = after;
        }
    }
    emit(Part::Text(rest));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<&'static str> {
        match name {
            "A" => Some("1"),
            "EMPTY" => Some(""),
            "NEST" => Some("$(A)"),
            "odd.key-1" => Some("x"),
            _ => None,
        }
    }

    #[track_caller]
    fn check(text: &str, expect: &str) {
        assert_eq!(expand(text, lookup), expect);
    }

    #[test]
    fn references_and_escapes() {
        check("", "");
        check("plain", "plain");
        check("$(A)", "1");
        check("x$(A)y$(A)z", "x1y1z");
        check("$(EMPTY)", "");
        check("$(odd.key-1)", "x");
        check("$(NOPE)", "$(NOPE)");
        check("$()", "$()");
        check("$$(A)", "$(A)");
        check("$$$(A)", "$1");
        check("$$$$(A)", "$$(A)");
        check("$", "$");
        check("a$", "a$");
        check("$$", "$");
        check("$A ${A}", "$A ${A}");
        check("$A $", "$A $");
        check("cost 5$", "cost 5$");
        check("$(A", "$(A");
        check("$($(A))", "$($(A))");
        check("$(NEST)", "$(A)");
        check("ä$(A)ö", "ä1ö");
    }

    #[test]
    fn sub_paths_need_every_name() {
        assert_eq!(expand_known("a/$(A)/$$x", lookup), Ok("a/1/$x".to_owned()));
        assert_eq!(expand_known("$(NOPE)/$(ALSO)", lookup), Err("NOPE".to_owned()));
    }
}
