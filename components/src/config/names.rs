//! The shapes of label keys and values, shared by taints and node labels.

/// Why `key` is not a qualified name (`[prefix/]name`), if it is not.
#[must_use]
pub fn qualified_name_problem(key: &str) -> Option<&'static str> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if prefix.is_some_and(|prefix| !is_dns_subdomain(prefix)) {
        return Some("the part before the slash must be a DNS name");
    }
    if name.is_empty() || name.len() > 63 || !is_label_text(name) {
        return Some("a name has 1 to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends");
    }
    None
}

/// Why `value` is not a label value, if it is not.
#[must_use]
pub fn label_value_problem(value: &str) -> Option<&'static str> {
    let fits = value.is_empty() || (value.len() <= 63 && is_label_text(value));
    (!fits).then_some("a value has up to 63 letters, digits, '-', '_' or '.', with a letter or digit at both ends")
}

fn is_label_text(text: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(b))
}

fn is_dns_subdomain(text: &str) -> bool {
    let lower = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let part_fits = |part: &str| {
        let bytes = part.as_bytes();
        let edges = bytes.first().zip(bytes.last());
        edges.is_some_and(|(a, b)| lower(*a) && lower(*b)) && bytes.iter().all(|b| lower(*b) || *b == b'-')
    };
    text.len() <= 253 && text.split('.').all(part_fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn qualified_names() {
        for good in ["a", "A_b.c-9", "example.com/role", "node.kubernetes.io/x"] {
            assert_eq!(qualified_name_problem(good), None, "{good}");
        }
        for bad in ["", "-a", "a-", "a b", "/x", "Example.com/x", "a/b/c", "x/", &"a".repeat(64), "é"] {
            assert!(qualified_name_problem(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn label_values() {
        for good in ["", "a", "v1.2_3-x", &"a".repeat(63)] {
            assert_eq!(label_value_problem(good), None, "{good}");
        }
        for bad in [".a", "a b", "a/b", &"a".repeat(64)] {
            assert!(label_value_problem(bad).is_some(), "{bad}");
        }
    }
}
