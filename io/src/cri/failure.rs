//! From a gRPC status, or an answer that makes no sense, to the class of failure that decisions branch on.

use std::error::Error;
use std::fmt::Display;
use std::io::ErrorKind;

use components::edge::{Failure, FailureClass, Outcome};
use tonic::{Code, Status};

/// Why a call gave no usable answer.
#[derive(Debug, Clone)]
pub(super) enum CallError {
    /// The runtime, or the transport to it, said so.
    Refused(Box<Status>),
    /// The answer came and is not what the call promises.
    Garbage(String),
    /// The bridge itself is wrong.
    Bug,
}

impl CallError {
    pub(super) fn garbage(path: &'static str, what: impl Display) -> Self {
        let call = path.rsplit('/').next().unwrap_or(path);
        Self::Garbage(format!("unusable answer to {call}: {what}"))
    }

    pub(super) const fn misrouted() -> Self {
        Self::Bug
    }

    /// The class of the failure.
    pub(super) fn class(&self) -> FailureClass {
        match self {
            Self::Refused(status) => class_of(status),
            Self::Garbage(_) => FailureClass::Garbage,
            Self::Bug => FailureClass::Other,
        }
    }

    /// True when the transport said it, not the runtime.
    pub(super) fn is_local(&self) -> bool {
        matches!(self, Self::Refused(status) if local_cause(status).is_some())
    }

    /// Text for people. What the runtime said is given as its Go clients print it, since events quote that.
    pub(super) fn message(&self) -> String {
        match self {
            Self::Refused(status) => match local_cause(status) {
                Some(cause) => cause.to_string(),
                None => format!("rpc error: code = {} desc = {}", go_name(status.code()), status.message()),
            },
            Self::Garbage(message) => message.clone(),
            Self::Bug => "the runtime bridge got an effect that it can't run; this is a bug of ticklet".to_owned(),
        }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

impl From<CallError> for Outcome {
    fn from(error: CallError) -> Self {
        match &error {
            // The runtime gave up waiting, as we would have: what it began may still happen.
            CallError::Refused(status) if status.code() == Code::DeadlineExceeded => Self::TimedOut,
            _ => Self::Failed(Failure { class: error.class(), message: error.message() }),
        }
    }
}

fn class_of(status: &Status) -> FailureClass {
    if status.source().is_some() {
        return transport_class(status);
    }
    match status.code() {
        Code::Unavailable | Code::Cancelled => FailureClass::Unavailable,
        Code::NotFound => FailureClass::NotFound,
        Code::AlreadyExists => FailureClass::AlreadyExists,
        Code::Unimplemented => FailureClass::Unimplemented,
        // Out of range is also what our own limit on the size of an answer gives.
        Code::ResourceExhausted | Code::OutOfRange => FailureClass::Exhausted,
        Code::InvalidArgument => FailureClass::Invalid,
        Code::PermissionDenied | Code::Unauthenticated => FailureClass::Denied,
        Code::DataLoss => FailureClass::Garbage,
        _ => FailureClass::Other,
    }
}

/// A status that the transport made up: either nobody is there, or the other side does not speak HTTP/2.
fn transport_class(status: &Status) -> FailureClass {
    for cause in causes(status) {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return match io.kind() {
                ErrorKind::PermissionDenied => FailureClass::Denied,
                _ => FailureClass::Unavailable,
            };
        }
        if let Some(h2) = cause.downcast_ref::<h2::Error>()
            && h2.is_library()
        {
            return FailureClass::Garbage;
        }
    }
    FailureClass::Unavailable
}

/// The innermost cause of a status that the transport made up.
fn local_cause(status: &Status) -> Option<&(dyn Error + 'static)> {
    causes(status).last()
}

fn causes<'a>(status: &'a Status) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(status.source(), |cause: &&'a (dyn Error + 'static)| (*cause).source())
}

/// Names of the codes as Go prints them.
const fn go_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "Canceled",
        Code::Unknown => "Unknown",
        Code::InvalidArgument => "InvalidArgument",
        Code::DeadlineExceeded => "DeadlineExceeded",
        Code::NotFound => "NotFound",
        Code::AlreadyExists => "AlreadyExists",
        Code::PermissionDenied => "PermissionDenied",
        Code::ResourceExhausted => "ResourceExhausted",
        Code::FailedPrecondition => "FailedPrecondition",
        Code::Aborted => "Aborted",
        Code::OutOfRange => "OutOfRange",
        Code::Unimplemented => "Unimplemented",
        Code::Internal => "Internal",
        Code::Unavailable => "Unavailable",
        Code::DataLoss => "DataLoss",
        Code::Unauthenticated => "Unauthenticated",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(code: Code, expect: &str) {
        let outcome = Outcome::from(CallError::from(Status::new(code, "no")));
        let text = match outcome {
            Outcome::Failed(Failure { class, message }) => format!("{class:?}: {message}"),
            other => format!("{other:?}"),
        };
        assert_eq!(text, expect);
    }

    #[test]
    fn every_code_has_its_class() {
        check(Code::Cancelled, "Unavailable: rpc error: code = Canceled desc = no");
        check(Code::Unknown, "Other: rpc error: code = Unknown desc = no");
        check(Code::InvalidArgument, "Invalid: rpc error: code = InvalidArgument desc = no");
        check(Code::DeadlineExceeded, "TimedOut");
        check(Code::NotFound, "NotFound: rpc error: code = NotFound desc = no");
        check(Code::AlreadyExists, "AlreadyExists: rpc error: code = AlreadyExists desc = no");
        check(Code::PermissionDenied, "Denied: rpc error: code = PermissionDenied desc = no");
        check(Code::ResourceExhausted, "Exhausted: rpc error: code = ResourceExhausted desc = no");
        check(Code::FailedPrecondition, "Other: rpc error: code = FailedPrecondition desc = no");
        check(Code::Aborted, "Other: rpc error: code = Aborted desc = no");
        check(Code::OutOfRange, "Exhausted: rpc error: code = OutOfRange desc = no");
        check(Code::Unimplemented, "Unimplemented: rpc error: code = Unimplemented desc = no");
        check(Code::Internal, "Other: rpc error: code = Internal desc = no");
        check(Code::Unavailable, "Unavailable: rpc error: code = Unavailable desc = no");
        check(Code::DataLoss, "Garbage: rpc error: code = DataLoss desc = no");
        check(Code::Unauthenticated, "Denied: rpc error: code = Unauthenticated desc = no");
    }

    #[test]
    fn an_answer_that_makes_no_sense_names_the_call() {
        let error = CallError::garbage("/runtime.v1.RuntimeService/Version", "no id");
        assert_eq!(error.message(), "unusable answer to Version: no id");
        assert_eq!(error.class(), FailureClass::Garbage);
    }

    #[test]
    fn transport_errors_are_told_apart_by_their_cause() {
        let check = |kind: ErrorKind, expect: FailureClass| {
            let error = CallError::from(Status::from_error(Box::new(std::io::Error::from(kind))));
            assert_eq!(error.class(), expect);
        };
        check(ErrorKind::ConnectionRefused, FailureClass::Unavailable);
        check(ErrorKind::NotFound, FailureClass::Unavailable);
        check(ErrorKind::PermissionDenied, FailureClass::Denied);
    }
}
