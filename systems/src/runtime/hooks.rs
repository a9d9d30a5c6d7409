//! What came of a hook: plain functions over its outcome.

use components::edge::cri::CriAnswer;
use components::edge::{Answer, Outcome};
use components::hooks::HookKind;

/// Reason of the event that tells of a failed hook (contract 6.9).
pub(super) const fn event(kind: HookKind) -> &'static str {
    match kind {
        HookKind::PostStart => "FailedPostStartHook",
        HookKind::PreStop => "FailedPreStopHook",
    }
}

/// Message of that event.
pub(super) const fn told(kind: HookKind) -> &'static str {
    match kind {
        HookKind::PostStart => "PostStartHook failed",
        HookKind::PreStop => "PreStopHook failed",
    }
}

/// Why a hook failed; `None` when it did not. An HTTP answer counts whatever its status.
pub(super) fn trouble(outcome: &Outcome) -> Option<String> {
    match outcome {
        Outcome::Done(Answer::Cri(CriAnswer::Executed { exit_code: 0, .. }) | Answer::Hooks(_)) => None,
        Outcome::Done(Answer::Cri(CriAnswer::Executed { exit_code, output })) => {
            Some(format!("command exited with {exit_code}: {}", output.trim_end()))
        }
        Outcome::Done(_) => Some("unexpected answer".to_owned()),
        Outcome::Failed(failure) => Some(failure.message.clone()),
        Outcome::TimedOut => Some("did not end in time".to_owned()),
        Outcome::Cancelled => Some("cancelled".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::edge::hooks::HooksAnswer;

    #[test]
    fn commands_fail_by_their_exit_code_and_requests_only_without_an_answer() {
        let executed =
            |exit_code| trouble(&Outcome::Done(Answer::Cri(CriAnswer::Executed { exit_code, output: "no\n".into() })));
        assert_eq!(executed(0), None);
        assert_eq!(executed(2).as_deref(), Some("command exited with 2: no"));
        let called = HooksAnswer::Called { status: 500, fell_back: false };
        assert_eq!(trouble(&Outcome::Done(Answer::Hooks(called))), None);
        assert!(trouble(&Outcome::TimedOut).is_some());
    }
}
