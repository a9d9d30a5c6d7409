//! Reading the query and the path of a request, as Go's forms do it.

use crate::percent::decode;

/// The pairs of a query in order.
pub(super) fn pairs(query: &str) -> Vec<(String, String)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            (decode(key.as_bytes(), true), decode(value.as_bytes(), true))
        })
        .collect()
}

/// Every value of a key.
pub(super) fn all(pairs: &[(String, String)], key: &str) -> Vec<String> {
    pairs.iter().filter(|(found, _)| found == key).map(|(_, value)| value.clone()).collect()
}

/// The first value of a key; empty when there is none.
pub(super) fn first<'a>(pairs: &'a [(String, String)], key: &str) -> &'a str {
    pairs.iter().find(|(found, _)| found == key).map_or("", |(_, value)| value)
}

/// The parts of a path behind its first.
pub(super) fn parts(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|part| !part.is_empty());
    parts.skip(1).map(|part| decode(part.as_bytes(), false)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_as_forms() {
        let read = pairs("command=sh&command=-c&command=echo+%22a%26b%22&tty=1&flag&&x=%zz%4");
        assert_eq!(all(&read, "command"), ["sh", "-c", "echo \"a&b\""]);
        assert_eq!((first(&read, "tty"), first(&read, "flag"), first(&read, "none")), ("1", "", ""));
        assert_eq!(first(&read, "x"), "%zz%4");
        assert_eq!(pairs(""), []);
    }

    #[test]
    fn paths_are_split_behind_their_first_part() {
        assert_eq!(parts("/exec/ns/pod%2Dx/c+"), ["ns", "pod-x", "c+"]);
        assert_eq!(parts("/exec/"), [""; 0]);
    }
}
