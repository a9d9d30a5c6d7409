//! Termination messages: what they may take up in a status together.

use components::status::{PodStatus, ReportedState};

/// Bytes of all termination messages of a pod together (contract 3.7).
const TOTAL: usize = 12_288;

/// Cuts each container's messages to its share.
pub(super) fn limit(status: &mut PodStatus) {
    let groups = [&mut status.init_containers, &mut status.containers, &mut status.ephemeral_containers];
    let count = groups.iter().map(|group| group.len()).sum::<usize>().max(1);
    for report in groups.into_iter().flatten() {
        for state in std::iter::once(&mut report.state).chain(&mut report.last) {
            if let ReportedState::Terminated { message, .. } = state {
                cut(message, TOTAL / count);
            }
        }
    }
}

fn cut(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_never_splits_a_character() {
        let mut text = "aé".to_owned();
        cut(&mut text, 2);
        assert_eq!(text, "a");
        cut(&mut text, 5);
        assert_eq!(text, "a");
    }
}
