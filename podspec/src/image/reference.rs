//! Whether an image name can be one: the grammar of the `distribution/reference` library, with its error texts, as upstream
//! asks it before it looks for an image (`pkg/util/parsers`). Pure; no name is changed.

/// Longest path of a repository, in bytes.
const PATH_MAX: usize = 255;
const TAG_MAX: usize = 128;

/// Why `image` is no name of an image; `None` when it is one.
pub(super) fn problem(image: &str) -> Option<String> {
    if image.len() == 64 && image.bytes().all(lower_hex) {
        return Some(format!("invalid repository name ({image}), cannot specify 64-byte hexadecimal strings"));
    }
    let (domain, remainder) = split_domain(image);
    let remote = remainder.split_once(':').map_or(remainder.as_str(), |(remote, _)| remote);
    if remote.to_lowercase() != remote {
        return Some(format!("invalid reference format: repository name ({remote}) must be lowercase"));
    }
    let whole = format!("{domain}/{remainder}");
    let Some((path, digest)) = parts(&whole) else {
        let lower = parts(&whole.to_lowercase()).is_some();
        return Some(if lower { "repository name must be lowercase" } else { "invalid reference format" }.to_owned());
    };
    if path.len() > PATH_MAX {
        return Some(format!("repository name must not be more than {PATH_MAX} characters"));
    }
    digest.and_then(digest_problem).map(str::to_owned)
}

/// The registry, which a short name leaves out, and the rest.
fn split_domain(image: &str) -> (&str, String) {
    const DEFAULT: &str = "docker.io";
    let Some((first, rest)) = image.split_once('/') else { return (DEFAULT, format!("library/{image}")) };
    let (domain, rest) = match first {
        "index.docker.io" => (DEFAULT, rest),
        "localhost" => (first, rest),
        _ if first.contains(['.', ':']) || first.to_lowercase() != first => (first, rest),
        _ => (DEFAULT, image),
    };
    let official = domain == DEFAULT && !rest.contains('/');
    (domain, if official { format!("library/{rest}") } else { rest.to_owned() })
}

/// The repository's path and the digest of a whole name; `None` when it does not follow the grammar.
fn parts(whole: &str) -> Option<(&str, Option<&str>)> {
    let (named, digest) = whole.split_once('@').map_or((whole, None), |(named, digest)| (named, Some(digest)));
    let last = named.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match named[last..].split_once(':') {
        Some((end, tag)) => (&named[..last + end.len()], Some(tag)),
        None => (named, None),
    };
    let path = match name.split_once('/') {
        Some((first, rest)) if is_domain(first) => rest,
        _ => name,
    };
    let good = path.split('/').all(is_path_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(|digest| digest.split_once(':').is_some_and(|(kind, hex)| is_digest(kind, hex)));
    good.then_some((path, digest))
}

fn is_domain(text: &str) -> bool {
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    if let Some(rest) = text.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        let is_address = !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
        return is_address && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let ends = bytes.first().zip(bytes.last());
        ends.is_some_and(|(a, z)| a.is_ascii_alphanumeric() && z.is_ascii_alphanumeric())
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

/// Letters and digits, with one point, one or two underscores or any number of dashes between them.
fn is_path_component(text: &str) -> bool {
    let is_word = |b: char| b.is_ascii_lowercase() || b.is_ascii_digit();
    if !text.starts_with(is_word) || !text.ends_with(is_word) {
        return false;
    }
    let between = text.split(is_word).filter(|separator| !separator.is_empty());
    between.into_iter().all(|s| matches!(s, "." | "_" | "__") || s.bytes().all(|b| b == b'-'))
}

fn is_tag(text: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= TAG_MAX
        && text.bytes().next().is_some_and(is_word)
        && text.bytes().all(|b| is_word(b) || b == b'.' || b == b'-')
}

fn is_digest(kind: &str, hex: &str) -> bool {
    let is_part = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic()) && part.bytes().all(|b| b.is_ascii_alphanumeric())
    };
    kind.split(['-', '_', '+', '.']).all(is_part) && hex.len() >= 32 && hex.bytes().all(|b| b.is_ascii_hexdigit())
}

/// What is wrong with a digest of the right form.
fn digest_problem(digest: &str) -> Option<&'static str> {
    let (kind, hex) = digest.split_once(':')?;
    let length = match kind {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ if kind.bytes().any(|b| b.is_ascii_uppercase()) => return Some("invalid checksum digest format"),
        _ => return Some("unsupported digest algorithm"),
    };
    if hex.len() != length {
        return Some("invalid checksum digest length");
    }
    (!hex.bytes().all(lower_hex)).then_some("invalid checksum digest format")
}

fn lower_hex(b: u8) -> bool {
    matches!(b, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_images() {
        let hex = "0123456789abcdef".repeat(4);
        for good in [
            "busybox",
            "busybox:1.36",
            "a/b",
            "a__b/c-d--e.f:T_a.g-1",
            "localhost/busybox:1",
            "localhost:5000/x",
            "reg.example:80/a/b@sha256:", // The digest is added.
            "Reg/x",
            "[fe80::1]:5000/x",
            "127.0.0.1:1/none:1",
        ] {
            let name = if good.ends_with(':') { format!("{good}{hex}") } else { good.to_owned() };
            assert_eq!(problem(&name), None, "{name}");
        }
    }

    /// Each text was printed by the Go library.
    #[test]
    fn what_is_no_name_says_why() {
        let hex = "0123456789abcdef".repeat(4);
        let long = "a".repeat(256);
        let format = "invalid reference format";
        let upper = |name: &str| format!("{format}: repository name ({name}) must be lowercase");
        for (bad, why) in [
            ("UPPER", upper("library/UPPER")),
            ("a/B:C", upper("a/B")),
            ("", format.to_owned()),
            (":1", format.to_owned()),
            ("a b", format.to_owned()),
            ("a/", format.to_owned()),
            ("a..b", format.to_owned()),
            ("a___b", format.to_owned()),
            ("-a", format.to_owned()),
            ("a:", format.to_owned()),
            ("a:b:c", format.to_owned()),
            ("a@sha256:12", format.to_owned()),
            ("http://reg/x", format.to_owned()),
            (&*hex, format!("invalid repository name ({hex}), cannot specify 64-byte hexadecimal strings")),
            (&*long, "repository name must not be more than 255 characters".to_owned()),
            (&*format!("a@md5:{}", &hex[..32]), "unsupported digest algorithm".to_owned()),
            (&*format!("a@sha256:{}", &hex[..32]), "invalid checksum digest length".to_owned()),
            (&*format!("a@sha256:{}", hex.to_uppercase()), "invalid checksum digest format".to_owned()),
        ] {
            assert_eq!(problem(bad), Some(why), "{bad:?}");
        }
    }
}
