//! Completions on their way to the driver, in the order in which they came about.

use components::edge::{Answer, Completion, Ingress, Outcome};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

/// Longest time that a probe's answer waits for others, far below the second in which probes are counted.
const LINGER: Duration = Duration::from_millis(5);

/// Completions on their way to the driver. Its bound is the number of works taken in and not yet answered.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    state: Mutex<OutboxState>,
    filled: Notify,
    hurried: Notify,
    emptied: Notify,
}

#[derive(Debug, Default)]
struct OutboxState {
    waiting: VecDeque<Completion>,
    /// Something else than a probe's answer waits.
    urgent: bool,
    sending: bool,
    closed: bool,
}

impl Outbox {
    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn append(&self, answers: &mut Vec<Completion>) {
        if answers.is_empty() {
            return;
        }
        let urgent = !answers.iter().all(|a| matches!(a.outcome, Outcome::Done(Answer::Probes(_))));
        {
            let mut state = self.lock();
            state.waiting.extend(answers.drain(..));
            state.urgent |= urgent;
        }
        self.filled.notify_one();
        if urgent {
            self.hurried.notify_one();
        }
    }

    /// Waits for more, as long as only answers of probes wait: one tick for a few dozen of them costs as much as for one.
    async fn linger(&self) {
        let may_wait = {
            let state = self.lock();
            !state.waiting.is_empty() && !state.urgent && !state.closed
        };
        if may_wait {
            let _ = tokio::time::timeout(LINGER, self.hurried.notified()).await;
        }
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
        self.hurried.notify_one();
    }

    /// The completions that wait; `None` when there will be no more.
    fn take(&self) -> Option<VecDeque<Completion>> {
        let mut state = self.lock();
        let batch = std::mem::take(&mut state.waiting);
        state.urgent = false;
        state.sending = !batch.is_empty();
        if !state.sending {
            self.emptied.notify_waiters();
        }
        (state.sending || !state.closed).then_some(batch)
    }

    pub(super) async fn wait_empty(&self) {
        loop {
            let told = self.emptied.notified();
            {
                let state = self.lock();
                if state.waiting.is_empty() && !state.sending {
                    return;
                }
            }
            told.await;
        }
    }
}

/// Carries completions to the driver until the dispatcher is gone. Without a receiver they are dropped.
pub(super) async fn forward(outbox: Arc<Outbox>, ingress: mpsc::Sender<Ingress>) {
    while let Some(batch) = outbox.take() {
        if batch.is_empty() {
            outbox.filled.notified().await;
            outbox.linger().await;
        }
        for completion in batch {
            if ingress.send(Ingress::Completed(completion)).await.is_err() {
                break;
            }
        }
    }
}
