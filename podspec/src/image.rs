//! Image names: what a name says after its repository, and the default tag.

mod reference;

/// Why upstream would not look for `image` at all, in its words; `None` when it is a name of an image.
#[must_use]
pub fn problem(image: &str) -> Option<String> {
    let why = reference::problem(image)?;
    Some(format!("Failed to apply default image tag {image:?}: couldn't parse image name {image:?}: {why}"))
}

/// How an image name selects a version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Named<'a> {
    /// By a tag.
    Tag(&'a str),
    /// By a digest, with or without a tag.
    Digest,
    /// Not at all.
    Bare,
}

/// Looks at what follows the repository in `image`.
pub(super) fn named(image: &str) -> Named<'_> {
    if image.contains('@') {
        return Named::Digest;
    }
    // A colon before the last slash belongs to the registry's port.
    let last = image.rsplit_once('/').map_or(image, |(_, last)| last);
    last.split_once(':').map_or(Named::Bare, |(_, tag)| Named::Tag(tag))
}

/// True when `image` stands for whatever is newest.
pub(super) fn is_latest(image: &str) -> bool {
    matches!(named(image), Named::Bare | Named::Tag("latest"))
}

/// `image` with `:latest` where it has neither tag nor digest.
pub(super) fn with_tag(image: &str) -> String {
    if named(image) == Named::Bare { format!("{image}:latest") } else { image.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(image: &str, expect: Named<'_>, tagged: &str) {
        assert_eq!(named(image), expect);
        assert_eq!(with_tag(image), tagged);
    }

    #[test]
    fn a_port_is_no_tag() {
        check("busybox", Named::Bare, "busybox:latest");
        check("localhost:5000/busybox", Named::Bare, "localhost:5000/busybox:latest");
        check("localhost:5000/busybox:1", Named::Tag("1"), "localhost:5000/busybox:1");
        check("a/b@sha256:00", Named::Digest, "a/b@sha256:00");
        check("a/b:1@sha256:00", Named::Digest, "a/b:1@sha256:00");
    }
}
