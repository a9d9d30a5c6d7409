//! How a process ended, from the runtime's words to those for a client.

use serde::{Deserialize, Serialize};

const SUCCESS: &str = "Success";
const FAILURE: &str = "Failure";
const NON_ZERO: &str = "NonZeroExitCode";
const EXIT_CODE: &str = "ExitCode";

/// What clients read on the error channel: a `Status` of the API.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Status {
    metadata: Metadata,
    #[serde(skip_serializing_if = "String::is_empty")]
    status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u16>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
struct Metadata {}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Details {
    causes: Vec<Cause>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Cause {
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    message: String,
}

/// The status for a client, from all that the runtime's error stream said. A stream that ends without a word was
/// broken off: that is never taken for success.
pub(super) fn told(said: &[u8]) -> String {
    if said.is_empty() {
        return broken("the runtime ended the stream without saying how the process ended");
    }
    let text = String::from_utf8_lossy(said);
    let status: Status = match serde_json::from_slice(said) {
        Ok(status) => status,
        Err(error) => return broken(&format!("error stream protocol error: {error} in {text:?}")),
    };
    match (status.status.as_str(), status.reason.as_str()) {
        (SUCCESS, _) => json(&Status { status: SUCCESS.to_owned(), ..Status::default() }),
        (FAILURE, NON_ZERO) => match exit_code(&status) {
            Ok(code) => json(&exited(code)),
            Err(message) => broken(&message),
        },
        (FAILURE, _) => broken(&status.message),
        _ => broken("error stream protocol error: unknown error"),
    }
}

/// The status for a stream that failed on the way.
pub(super) fn broken(message: &str) -> String {
    let cause = Cause { message: message.to_owned(), ..Cause::default() };
    json(&Status {
        status: FAILURE.to_owned(),
        message: format!("Internal error occurred: {message}"),
        reason: "InternalError".to_owned(),
        details: Some(Details { causes: vec![cause] }),
        code: Some(500),
        ..Status::default()
    })
}

fn exited(code: u8) -> Status {
    let cause = Cause { reason: EXIT_CODE.to_owned(), message: code.to_string() };
    Status {
        status: FAILURE.to_owned(),
        message: format!("command terminated with non-zero exit code: command terminated with exit code {code}"),
        reason: NON_ZERO.to_owned(),
        details: Some(Details { causes: vec![cause] }),
        ..Status::default()
    }
}

fn exit_code(status: &Status) -> Result<u8, String> {
    let details = status.details.as_ref().ok_or("error stream protocol error: details must be set")?;
    let cause = details.causes.iter().find(|cause| cause.reason == EXIT_CODE);
    let cause = cause.ok_or_else(|| format!("error stream protocol error: no {EXIT_CODE} cause given"))?;
    let text = &cause.message;
    text.parse().map_err(|_| format!("error stream protocol error: invalid exit code value {text:?}"))
}

fn json(status: &Status) -> String {
    // Texts and numbers always have a form in JSON.
    serde_json::to_string(status).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(said: &str, expect: &str) {
        assert_eq!(told(said.as_bytes()), expect);
    }

    #[test]
    fn ends_are_told_as_the_reference_tells_them() {
        check(r#"{"metadata":{},"status":"Success"}"#, r#"{"metadata":{},"status":"Success"}"#);
        check(
            r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#,
            r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: command terminated with exit code 7","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#,
        );
        check(
            r#"{"status":"Failure","message":"no such file","code":500}"#,
            r#"{"metadata":{},"status":"Failure","message":"Internal error occurred: no such file","reason":"InternalError","details":{"causes":[{"message":"no such file"}]},"code":500}"#,
        );
    }

    #[test]
    fn what_makes_no_sense_is_a_failure() {
        for said in [
            "",
            "text",
            "{}",
            r#"{"status":"Failure","reason":"NonZeroExitCode"}"#,
            r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[]}}"#,
            r#"{"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"x"}]}}"#,
        ] {
            assert!(told(said.as_bytes()).contains(r#""status":"Failure""#), "{said}");
        }
    }
}
