//! Equal questions that are under way at the same time are asked once; each asker gets the one answer.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use std::collections::BTreeMap;
use std::fmt::{Debug, Formatter};
use std::sync::{Arc, Mutex, PoisonError};

type Outcome<A, E> = Result<A, Arc<E>>;
type Flight<A, E> = BoxFuture<'static, Outcome<A, E>>;

/// Questions under way, by their subject.
pub(super) struct Flights<A, E> {
    under_way: Mutex<BTreeMap<String, WeakShared<Flight<A, E>>>>,
}

impl<A, E> Default for Flights<A, E> {
    fn default() -> Self {
        Self { under_way: Mutex::default() }
    }
}

impl<A, E> Debug for Flights<A, E> {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("Flights")
    }
}

impl<A: Clone + Send + Sync + 'static, E: Send + Sync + 'static> Flights<A, E> {
    /// Joins the question for `subject` that is under way, or asks it.
    pub(super) async fn join<F>(&self, subject: String, ask: impl FnOnce(String) -> F) -> Outcome<A, E>
    where
        F: Future<Output = Result<A, E>> + Send + 'static,
    {
        self.flight(subject, ask).await
    }

    /// What is asked from now on is asked anew: what was under way may not know of a change.
    pub(super) fn part(&self) {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    fn flight<F>(&self, subject: String, ask: impl FnOnce(String) -> F) -> Shared<Flight<A, E>>
    where
        F: Future<Output = Result<A, E>> + Send + 'static,
    {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        // An answer that is there already is older than the question.
        let joined = under_way.get(&subject).and_then(WeakShared::upgrade).filter(|flight| flight.peek().is_none());
        joined.unwrap_or_else(|| {
            under_way.retain(|_, flight| flight.upgrade().is_some());
            let flight = ask(subject.clone()).map(|answer| answer.map_err(Arc::new)).boxed().shared();
            if let Some(weak) = flight.downgrade() {
                under_way.insert(subject, weak);
            }
            flight
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tokio::sync::Notify;

    #[tokio::test]
    async fn equal_questions_under_way_are_asked_once() {
        let flights: Flights<u32, String> = Flights::default();
        let (asked, gate) = (Arc::new(AtomicU32::new(0)), Arc::new(Notify::new()));
        let ask = |_| {
            let (asked, gate) = (Arc::clone(&asked), Arc::clone(&gate));
            async move {
                let number = asked.fetch_add(1, Ordering::SeqCst);
                gate.notified().await;
                Ok(number)
            }
        };
        let (one, two) = (flights.flight("a".into(), ask), flights.flight("a".into(), ask));
        flights.part();
        let three = flights.flight("a".into(), ask);
        let open = async {
            for _ in 0..2 {
                tokio::task::yield_now().await;
                gate.notify_one();
            }
        };
        let (one, two, three, ()) = tokio::join!(one, two, three, open);
        assert_eq!((one, two, three), (Ok(0), Ok(0), Ok(1)));
        gate.notify_one();
        assert_eq!(flights.join("a".into(), ask).await, Ok(2));
    }

    #[tokio::test]
    async fn an_asker_that_goes_does_not_take_the_answer_along() {
        let flights: Flights<u32, String> = Flights::default();
        let gate = Arc::new(Notify::new());
        let ask = |_| {
            let gate = Arc::clone(&gate);
            async move {
                gate.notified().await;
                Err("no".to_owned())
            }
        };
        let (first, second) = (flights.flight("a".into(), ask), flights.flight("a".into(), ask));
        drop(first);
        gate.notify_one();
        assert_eq!(second.await, Err(Arc::new("no".to_owned())));
    }
}
