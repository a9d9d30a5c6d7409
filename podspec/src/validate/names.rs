//! Forms of names. Each function says what is wrong, or `None`.

/// A DNS label (RFC 1123).
pub(super) fn label(name: &str) -> Option<&'static str> {
    (name.len() > 63 || !is_label(name)).then_some(
        "must be at most 63 lower case letters, digits or '-', and start and end with a letter or digit (RFC 1123)",
    )
}

/// A DNS subdomain (RFC 1123).
pub(super) fn subdomain(name: &str) -> Option<&'static str> {
    (name.len() > 253 || !name.split('.').all(is_label)).then_some(
        "must be at most 253 lower case letters, digits, '-' or '.', and start and end with a letter or digit (RFC 1123)",
    )
}

/// A name with an optional prefix and slash, as label and annotation keys are.
pub(super) fn qualified(key: &str) -> Option<&'static str> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let good = prefix.is_none_or(|prefix| subdomain(prefix).is_none()) && name.len() <= 63 && is_loose(name);
    (!good).then_some(
        "must be at most 63 letters, digits, '-', '_' or '.', start and end with a letter or digit, and may have a DNS \
         subdomain and '/' before it",
    )
}

/// A label's value.
pub(super) fn label_value(value: &str) -> Option<&'static str> {
    (value.len() > 63 || !(value.is_empty() || is_loose(value))).then_some(
        "must be empty or at most 63 letters, digits, '-', '_' or '.', and start and end with a letter or digit",
    )
}

/// The name of a port (an IANA service name).
pub(super) fn port(name: &str) -> Option<&'static str> {
    let good =
        name.len() <= 15 && is_label(name) && name.bytes().any(|b| b.is_ascii_lowercase()) && !name.contains("--");
    (!good).then_some("must be at most 15 lower case letters, digits or single '-' inside, with at least one letter")
}

/// The name of an environment variable.
pub(super) fn env(name: &str) -> Option<&'static str> {
    let good = !name.is_empty() && name.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=');
    (!good).then_some("must be printable ASCII characters other than '='")
}

/// The name of a sysctl, with dots or slashes.
pub(super) fn sysctl(name: &str) -> Option<&'static str> {
    let part = |part: &str| {
        part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
            && !part.is_empty()
            && !part.starts_with(['-', '_'])
            && !part.ends_with(['-', '_'])
    };
    (name.len() > 253 || !name.split(['.', '/']).all(part)).then_some(
        "must be at most 253 characters: lower case words of letters, digits, '-' or '_', joined by '.' or '/'",
    )
}

/// An IP address.
pub(super) fn ip(text: &str) -> Option<&'static str> {
    text.parse::<std::net::IpAddr>().is_err().then_some("must be a valid IP address")
}

fn is_label(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn is_loose(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
        && !name.starts_with(['-', '_', '.'])
        && !name.ends_with(['-', '_', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(form: fn(&str) -> Option<&'static str>, good: &[&str], bad: &[&str]) {
        for name in good {
            assert_eq!(form(name), None, "{name:?} is good");
        }
        for name in bad {
            assert!(form(name).is_some(), "{name:?} is bad");
        }
    }

    #[test]
    fn forms() {
        let (long, longer) = ("a".repeat(63), "a".repeat(64));
        check(label, &["a", "a-b", "0", &long], &["", "-a", "a-", "A", "a.b", "a_b", "ä", &longer]);
        check(subdomain, &["a", "a.b", "web-lab.x"], &["", ".", "a.", ".a", "a..b", "A", "a/b", &"a.".repeat(127)]);
        check(qualified, &["a", "A_b.c", "x.y/Z"], &["", "/a", "a/", "a/b/c", "X/a", "-a", "a b"]);
        check(label_value, &["", "a", "A.b_c-d"], &["-", "a-", "a b", &longer]);
        check(port, &["web", "a1", "1a", "a-b"], &["", "1", "a--b", "-a", "Web", "sixteen-letters-"]);
        check(env, &["A", "a.b-1", "1", "A B"], &["", "A=B", "ä", "a\tb"]);
        check(sysctl, &["kernel.shm_rmid_forced", "net/ipv4/x", "a"], &["", "a..b", "A", "net.", "_a"]);
        check(ip, &["10.0.0.1", "::1"], &["", "10.0.0", "a", "10.0.0.1/8"]);
    }
}
