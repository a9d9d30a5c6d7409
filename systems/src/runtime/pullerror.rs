//! What a failed pull is called: the reason and message of a container that waits for its image (contract 7, upstream
//! `image_manager.go`). Reads only its arguments.

/// Codes of unknown failures say nothing and are left out.
const UNKNOWN: &str = "rpc error: code = Unknown desc = ";

/// Errors that runtimes name, and what follows from them.
const NAMED: [(&str, &str); 2] = [
    ("RegistryUnavailable", "the registry is unavailable"),
    ("SignatureValidationFailed", "the signature validation failed"),
];

/// The runtime's words as they are shown.
pub(crate) fn words(said: &str) -> &str {
    said.strip_prefix(UNKNOWN).unwrap_or(said)
}

/// Reason and message of a pull of `image` that failed with these words.
pub(crate) fn of(image: &str, said: &str) -> (&'static str, String) {
    let said = words(said);
    for (name, why) in NAMED {
        if let Some(rest) = said.strip_prefix(name) {
            return (name, format!("image pull failed for {image} because {why}{rest}"));
        }
    }
    ("ErrImagePull", said.to_owned())
}

/// What is said of an image that is not there and may not be pulled.
pub(crate) fn not_present(image: &str) -> String {
    format!("Container image \"{image}\" is not present with pull policy of Never")
}

/// What is said of a pull that does not begin, as it could not be noted first.
pub(crate) fn not_noted(image: &str, why: &str) -> String {
    format!("Failed to record image pull intent for container image \"{image}\": {why}")
}

/// True for a reason that a failed pull has.
pub(crate) fn is_one(reason: &str) -> bool {
    reason == "ErrImagePull" || NAMED.iter().any(|(name, _)| *name == reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_the_names_of_upstream() {
        let check = |said: &str, reason: &str, message: &str| {
            assert_eq!(of("i", said), (reason_of(reason), message.to_owned()))
        };
        check("rpc error: code = Unknown desc = no such host", "ErrImagePull", "no such host");
        let code = "rpc error: code = NotFound desc = none";
        check(code, "ErrImagePull", code);
        let gone = "rpc error: code = Unknown desc = RegistryUnavailable: down";
        check(gone, "RegistryUnavailable", "image pull failed for i because the registry is unavailable: down");
        let bad = "SignatureValidationFailed";
        check(bad, bad, "image pull failed for i because the signature validation failed");
    }

    fn reason_of(reason: &str) -> &str {
        assert!(is_one(reason) && !is_one("ImagePullBackOff"));
        reason
    }
}
