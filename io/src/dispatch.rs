//! Runs the works of ticks through the ports and hands back one completion for each.
//!
//! Decides nothing about *what* is done: it keeps order within a lane, lets lanes run in parallel up to the limit of
//! the effect's kind, keeps deadlines, and cancels. Reads works from the driver; writes completions to the bounded
//! ingress channel through a task of its own, so that neither a port nor `submit` ever waits for the driver.
//! Only running works have a task; a waiting lane is an entry in a map, an idle one is nothing.

mod outbox;
mod queue;
mod stats;

pub use self::stats::{DispatchStats, KindStats, OperationStats};

use self::outbox::{Outbox, forward};
use self::queue::{Queue, Start};
use components::edge::api::ApiEffect;
use components::edge::cri::CriEffect;
use components::edge::host::HostEffect;
use components::edge::probes::ProbesEffect;
use components::edge::sources::SourcesEffect;
use components::edge::{Effect, Failure, FailureClass, Ingress, Outcome, Work};
use components::ids::Ticket;
use futures_util::FutureExt;
use futures_util::future::Abortable;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::apiserver::ApiCall;
use crate::port::Port;

/// The executors of all kinds of effect.
#[derive(Debug)]
pub struct Ports<C, H, S, P, A> {
    /// Container runtime.
    pub cri: C,
    /// This host.
    pub host: H,
    /// Pod sources.
    pub sources: S,
    /// Probes over the network.
    pub probes: P,
    /// API server.
    pub api: A,
}

/// Kinds of work, each with its own limit of how many run at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Makes or starts sandboxes and containers.
    Start,
    /// Stops or removes sandboxes and containers; may take a pod's whole grace period.
    Stop,
    /// Pulls images.
    Pull,
    /// Looks at one pod or image.
    Inspect,
    /// Looks at the runtime as a whole.
    Runtime,
    /// Changes this host.
    Host,
    /// Reads a pod source.
    Sources,
    /// Asks a probe over the network.
    Probe,
    /// Runs hooks, and commands in containers; may take a pod's whole grace period.
    Exec,
    /// Sends one request to the API server.
    Api,
    /// Watches at the API server; lasts as long as its connection.
    Watch,
    /// Makes keys, which takes a processor for seconds.
    Keys,
}

impl Kind {
    /// Every kind, in the order of their indices.
    pub const ALL: [Self; 12] = [
        Self::Start,
        Self::Stop,
        Self::Pull,
        Self::Inspect,
        Self::Runtime,
        Self::Host,
        Self::Sources,
        Self::Probe,
        Self::Exec,
        Self::Api,
        Self::Watch,
        Self::Keys,
    ];

    /// The kind of an effect.
    #[must_use]
    pub const fn of(effect: &Effect) -> Self {
        match effect {
            Effect::Cri(call) => match call {
                CriEffect::RunSandbox { .. }
                | CriEffect::CreateContainer { .. }
                | CriEffect::UpdateContainer { .. }
                | CriEffect::StartContainer { .. } => Self::Start,
                CriEffect::StopSandbox { .. }
                | CriEffect::RemoveSandbox { .. }
                | CriEffect::StopContainer { .. }
                | CriEffect::RemoveContainer { .. } => Self::Stop,
                CriEffect::ExecSync { .. } => Self::Exec,
                CriEffect::PullImage { .. } => Self::Pull,
                CriEffect::InspectPod { .. }
                | CriEffect::FindImage { .. }
                | CriEffect::ListImages
                | CriEffect::ReopenLog { .. } => Self::Inspect,
                CriEffect::ReadRuntime
                | CriEffect::ListRuntime
                | CriEffect::SetPodCidr { .. }
                | CriEffect::WatchEvents => Self::Runtime,
            },
            Effect::Host(HostEffect::PodKeys(_)) => Self::Keys,
            Effect::Host(_) => Self::Host,
            Effect::Sources(_) => Self::Sources,
            Effect::Probes(_) => Self::Probe,
            Effect::Hooks(_) => Self::Exec,
            Effect::Api(ApiEffect::Request(_) | ApiEffect::Bootstrap(_)) => Self::Api,
            Effect::Api(ApiEffect::Watch(_)) => Self::Watch,
        }
    }

    /// Value of the label `kind`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Pull => "pull",
            Self::Inspect => "inspect",
            Self::Runtime => "runtime",
            Self::Host => "host",
            Self::Sources => "sources",
            Self::Probe => "probe",
            Self::Exec => "exec",
            Self::Api => "api",
            Self::Watch => "watch",
            Self::Keys => "keys",
        }
    }
}

/// How many works of each kind run at a time, and how many may wait in all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// [`Kind::Start`].
    pub starts: usize,
    /// [`Kind::Stop`].
    pub stops: usize,
    /// [`Kind::Pull`]; 1 with `serializeImagePulls`.
    pub pulls: usize,
    /// [`Kind::Inspect`].
    pub inspects: usize,
    /// [`Kind::Runtime`].
    pub runtime: usize,
    /// [`Kind::Host`].
    pub host: usize,
    /// [`Kind::Sources`].
    pub sources: usize,
    /// [`Kind::Probe`].
    pub probes: usize,
    /// [`Kind::Exec`].
    pub execs: usize,
    /// [`Kind::Api`].
    pub requests: usize,
    /// [`Kind::Watch`].
    pub watches: usize,
    /// [`Kind::Keys`].
    pub keys: usize,
    /// Works that wait; one more is answered `Failed` (`Exhausted`).
    pub waiting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            // A runtime forks for each start; more at once only queue up inside it.
            starts: 16,
            // A stop mostly waits for a grace period, so many must overlap when a node is drained.
            stops: 512,
            pulls: 1,
            inspects: 32,
            // A hanging event stream must not hold up a relist or a status question.
            runtime: 4,
            host: 8,
            sources: 2,
            // One socket each. Targets that hang hold theirs until the probe's timeout.
            probes: 1024,
            // Hooks and commands of probes: a process each inside of a container; a hook may wait as long as a stop does.
            execs: 512,
            // Streams of one connection. Whoever asks bounds its own; this is for all together.
            requests: 512,
            // Those that hold a single object each are the many.
            watches: 8192,
            // As many at once as leave processors to everything else.
            keys: 1,
            // Ten works for each of 10,000 pods.
            waiting: 100_000,
        }
    }
}

impl Limits {
    /// The limit of a kind, at least 1.
    #[must_use]
    pub const fn of(&self, kind: Kind) -> usize {
        let limit = match kind {
            Kind::Start => self.starts,
            Kind::Stop => self.stops,
            Kind::Pull => self.pulls,
            Kind::Inspect => self.inspects,
            Kind::Runtime => self.runtime,
            Kind::Host => self.host,
            Kind::Sources => self.sources,
            Kind::Probe => self.probes,
            Kind::Exec => self.execs,
            Kind::Api => self.requests,
            Kind::Watch => self.watches,
            Kind::Keys => self.keys,
        };
        if limit == 0 { 1 } else { limit }
    }
}

/// Runs works; cheap to clone.
#[derive(Debug)]
pub struct Dispatcher<C, H, S, P, A> {
    shared: Arc<Shared<C, H, S, P, A>>,
}

impl<C, H, S, P, A> Clone for Dispatcher<C, H, S, P, A> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<C, H, S, P, A> Dispatcher<C, H, S, P, A>
where
    C: Port<CriEffect>,
    H: Port<HostEffect>,
    S: Port<SourcesEffect>,
    P: Port<ProbesEffect>,
    A: Port<ApiCall>,
{
    /// Makes a dispatcher that runs works on the current tokio runtime; completions go to `ingress`.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    #[must_use]
    pub fn new(ports: Ports<C, H, S, P, A>, limits: Limits, ingress: mpsc::Sender<Ingress>) -> Self {
        let outbox = Arc::new(Outbox::default());
        let handle = Handle::current();
        handle.spawn(forward(Arc::clone(&outbox), ingress));
        Self {
            shared: Arc::new(Shared {
                ports,
                queue: Mutex::new(Queue::new(limits)),
                outbox,
                idle: Notify::new(),
                handle,
            }),
        }
    }

    /// Takes works in, in order. Never waits.
    pub fn submit(&self, works: Vec<Work>) {
        if works.is_empty() {
            return;
        }
        let now = Instant::now();
        let starts = self.shared.with_queue(|queue| {
            for work in works {
                queue.push(work, now);
            }
            queue.take_all(now)
        });
        self.shared.spawn_all(starts);
    }

    /// Cancels works wherever they are. Each not answered yet is answered `Cancelled`; unknown tickets are ignored.
    pub fn cancel(&self, tickets: &[Ticket]) {
        if tickets.is_empty() {
            return;
        }
        let now = Instant::now();
        let starts = self.shared.with_queue(|queue| {
            for ticket in tickets {
                queue.cancel(*ticket);
            }
            queue.take_all(now)
        });
        self.shared.spawn_all(starts);
    }

    /// Numbers of now.
    #[must_use]
    pub fn stats(&self) -> DispatchStats {
        let now = Instant::now();
        self.shared.lock().stats(now)
    }

    /// Ends: what waits is cancelled, what runs may go on for `grace` and is then cancelled, later works are
    /// cancelled at once. Returns when every completion was handed over, or when nobody receives them any more.
    pub async fn shutdown(&self, grace: Duration) {
        self.shared.with_queue(Queue::close);
        if tokio::time::timeout(grace, self.shared.wait_idle()).await.is_err() {
            self.shared.with_queue(|queue| queue.abort_running());
            self.shared.wait_idle().await;
        }
        self.shared.outbox.wait_empty().await;
    }
}

#[derive(Debug)]
struct Shared<C, H, S, P, A> {
    ports: Ports<C, H, S, P, A>,
    queue: Mutex<Queue>,
    outbox: Arc<Outbox>,
    /// Told when nothing runs any more.
    idle: Notify,
    handle: Handle,
}

impl<C, H, S, P, A> Drop for Shared<C, H, S, P, A> {
    fn drop(&mut self) {
        self.outbox.close();
    }
}

impl<C, H, S, P, A> Shared<C, H, S, P, A> {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        // Nothing inside the lock panics half-way through a change, so a poisoned queue is still whole.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the queue, then passes on the answers that the change brought about.
    fn with_queue<R>(&self, change: impl FnOnce(&mut Queue) -> R) -> R {
        let mut queue = self.lock();
        let result = change(&mut queue);
        // Handed over under the lock: completions leave in the order in which they came about.
        self.outbox.append(queue.answers());
        if queue.is_idle() {
            self.idle.notify_waiters();
        }
        result
    }

    async fn wait_idle(&self) {
        loop {
            let told = self.idle.notified();
            if self.lock().is_idle() {
                return;
            }
            told.await;
        }
    }
}

impl<C, H, S, P, A> Shared<C, H, S, P, A>
where
    C: Port<CriEffect>,
    H: Port<HostEffect>,
    S: Port<SourcesEffect>,
    P: Port<ProbesEffect>,
    A: Port<ApiCall>,
{
    fn spawn_all(self: &Arc<Self>, starts: Vec<Start>) {
        for start in starts {
            self.handle.spawn(Arc::clone(self).run(start));
        }
    }

    /// Runs one work after another as long as each end frees the way for a next one.
    async fn run(self: Arc<Self>, mut start: Start) {
        loop {
            let slot = start.slot();
            let outcome = self.run_one(start).await;
            let now = Instant::now();
            let mut next = self.with_queue(|queue| {
                queue.finish(slot, outcome, now);
                queue.take_all(now)
            });
            let Some(own) = next.pop() else { return };
            self.spawn_all(next);
            start = own;
        }
    }

    async fn run_one(&self, start: Start) -> Outcome {
        let Start { ticket, effect, timeout, abort, .. } = start;
        let ported = AssertUnwindSafe(self.through_port(ticket, effect)).catch_unwind();
        match Abortable::new(tokio::time::timeout(timeout, ported), abort).await {
            Ok(Ok(Ok(outcome))) => outcome,
            Ok(Ok(Err(_panic))) => Outcome::Failed(Failure {
                class: FailureClass::Other,
                message: "the port panicked; this is a bug of ticklet".to_owned(),
            }),
            Ok(Err(_elapsed)) => Outcome::TimedOut,
            Err(_aborted) => Outcome::Cancelled,
        }
    }

    async fn through_port(&self, ticket: Ticket, effect: Effect) -> Outcome {
        match effect {
            Effect::Cri(call) => self.ports.cri.run(call).await,
            Effect::Host(change) => self.ports.host.run(change).await,
            Effect::Sources(read) => self.ports.sources.run(read).await,
            Effect::Probes(attempt) => self.ports.probes.run(attempt).await,
            Effect::Hooks(hook) => crate::hooks::run(hook).await,
            Effect::Api(call) => self.ports.api.run(ApiCall { ticket, effect: call }).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use components::edge::cri::CriAnswer;
    use components::edge::{Answer, Lane, Why};
    use components::ids::{ContainerId, PodUid};
    use std::collections::BTreeMap;
    use std::future::pending;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A runtime whose calls do what their image name says: `sleep N`, `fail`, `hang`, `panic`, `burst`.
    #[derive(Default)]
    struct Fake {
        running: AtomicUsize,
        most: AtomicUsize,
        ended: AtomicUsize,
        log: Mutex<Vec<String>>,
    }

    struct InFlight<'a>(&'a Fake);

    impl Drop for InFlight<'_> {
        fn drop(&mut self) {
            self.0.running.fetch_sub(1, Ordering::SeqCst);
            self.0.ended.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Port<CriEffect> for Arc<Fake> {
        async fn run(&self, effect: CriEffect) -> Outcome {
            let (CriEffect::FindImage { image } | CriEffect::PullImage { image, .. }) = effect else {
                return Outcome::Done(Answer::Nothing);
            };
            let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            let _in_flight = InFlight(self);
            self.log.lock().unwrap().push(image.clone());
            match image.split_whitespace().collect::<Vec<_>>()[..] {
                ["fail", ..] => Outcome::Failed(Failure { class: FailureClass::NotFound, message: "no".to_owned() }),
                ["hang", ..] => pending().await,
                ["panic", ..] => panic!("asked to"),
                ["sleep", ms, ..] => {
                    tokio::time::sleep(Duration::from_millis(ms.parse().unwrap())).await;
                    Outcome::Done(Answer::Cri(CriAnswer::ImageFound(None)))
                }
                _ => Outcome::Done(Answer::Nothing),
            }
        }
    }

    struct Nothing;

    impl<E: Send + 'static> Port<E> for Nothing {
        async fn run(&self, _effect: E) -> Outcome {
            Outcome::Done(Answer::Nothing)
        }
    }

    struct Rig {
        fake: Arc<Fake>,
        dispatcher: Dispatcher<Arc<Fake>, Nothing, Nothing, Nothing, Nothing>,
        ingress: mpsc::Receiver<Ingress>,
    }

    impl Rig {
        fn new(limits: Limits) -> Self {
            let fake = Arc::new(Fake::default());
            let ports =
                Ports { cri: Arc::clone(&fake), host: Nothing, sources: Nothing, probes: Nothing, api: Nothing };
            // The smallest bound, so that every test also meets a full channel.
            let (sender, ingress) = mpsc::channel(1);
            Self { fake, dispatcher: Dispatcher::new(ports, limits, sender), ingress }
        }

        /// The next `count` completions in the order of their arrival, as `ticket outcome`.
        async fn next(&mut self, count: usize) -> Vec<String> {
            let mut seen = Vec::new();
            while seen.len() < count {
                let got = tokio::time::timeout(Duration::from_secs(3600), self.ingress.recv());
                let Some(Ingress::Completed(completion)) = got.await.unwrap() else {
                    panic!("no completion");
                };
                let word = match completion.outcome {
                    Outcome::Done(_) => "done",
                    Outcome::Failed(failure) => match failure.class {
                        FailureClass::NotFound => "failed",
                        FailureClass::Exhausted => "exhausted",
                        _ => "broken",
                    },
                    Outcome::TimedOut => "timed-out",
                    Outcome::Cancelled => "cancelled",
                };
                seen.push(format!("{} {word}", completion.ticket.0));
            }
            seen
        }
    }

    /// One work per line: `TICKET LANE[+] IMAGE…`; lane `-` is free, `+` is chained.
    fn works(text: &str) -> Vec<Work> {
        text.lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .map(|line| {
                let mut parts = line.splitn(3, ' ');
                let ticket = Ticket(parts.next().unwrap().parse().unwrap());
                let lane = parts.next().unwrap();
                Work {
                    ticket,
                    lane: match lane.trim_end_matches('+') {
                        "-" => Lane::Free,
                        uid => Lane::Pod { uid: PodUid::from(uid), strand: 0 },
                    },
                    chained: lane.ends_with('+'),
                    timeout: Duration::from_secs(10),
                    why: Why { system: "test", rule: "test" },
                    effect: Effect::Cri(CriEffect::FindImage { image: parts.next().unwrap_or_default().to_owned() }),
                }
            })
            .collect()
    }

    #[track_caller]
    fn sorted(mut seen: Vec<String>) -> Vec<String> {
        seen.sort_by_key(|line| line.split(' ').next().unwrap().parse::<u64>().unwrap());
        seen
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_is_first_in_first_out_and_a_failure_cuts_its_chain() {
        let mut rig = Rig::new(Limits::default());
        rig.dispatcher.submit(works(
            "1 a sleep 50
             2 a+ fail
             3 a+ never
             4 a+ never
             5 a sleep 1
             6 a+ ok",
        ));
        let expect = ["1 done", "2 failed", "3 cancelled", "4 cancelled", "5 done", "6 done"];
        assert_eq!(rig.next(6).await, expect);
        assert_eq!(*rig.fake.log.lock().unwrap(), ["sleep 50", "fail", "sleep 1", "ok"]);
        assert_eq!(rig.dispatcher.stats().lanes, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_chained_work_of_a_later_submit_knows_that_its_lane_failed() {
        let mut rig = Rig::new(Limits::default());
        rig.dispatcher.submit(works("1 a fail"));
        assert_eq!(rig.next(1).await, ["1 failed"]);
        rig.dispatcher.submit(works(
            "2 a+ never
3 a ok
4 a+ ok",
        ));
        assert_eq!(rig.next(3).await, ["2 cancelled", "3 done", "4 done"]);
    }

    #[tokio::test(start_paused = true)]
    async fn lanes_run_in_parallel_up_to_the_limit_of_their_kind() {
        let mut rig = Rig::new(Limits { inspects: 3, ..Limits::default() });
        let text: String = (0..12)
            .map(|i| {
                format!(
                    "{i} p{i} sleep 100
"
                )
            })
            .collect();
        let began = Instant::now();
        rig.dispatcher.submit(works(&text));
        tokio::time::sleep(Duration::from_millis(10)).await;
        let stats = rig.dispatcher.stats();
        let inspects = &stats.kinds[Kind::Inspect as usize];
        assert_eq!((inspects.running, inspects.waiting), (3, 9));
        assert_eq!(rig.next(12).await.len(), 12);
        assert_eq!(rig.fake.most.load(Ordering::SeqCst), 3);
        assert_eq!(began.elapsed(), Duration::from_millis(400));
        let stats = rig.dispatcher.stats();
        assert_eq!(stats.kinds[Kind::Inspect as usize].done, 12);
        assert_eq!(stats.kinds[Kind::Inspect as usize].longest_wait, Duration::from_millis(300));
        assert_eq!(stats.operations[0].operation, "image_status");
        assert_eq!(stats.operations[0].count, 12);
    }

    #[tokio::test(start_paused = true)]
    async fn the_deadline_runs_from_the_start_of_the_work_not_from_its_wait() {
        let mut rig = Rig::new(Limits { inspects: 1, ..Limits::default() });
        let began = Instant::now();
        rig.dispatcher.submit(works(
            "1 a hang
2 b hang
3 a+ never
4 c sleep 9999",
        ));
        let expect = ["1 timed-out", "3 cancelled", "2 timed-out", "4 done"];
        assert_eq!(rig.next(4).await, expect);
        assert_eq!(began.elapsed(), Duration::from_millis(29_999));
        assert_eq!(rig.fake.ended.load(Ordering::SeqCst), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn cancel_reaches_running_and_waiting_works_once() {
        let mut rig = Rig::new(Limits::default());
        rig.dispatcher.submit(works(
            "1 a hang
             2 a ok
             3 a+ chained to a cancelled one
             4 a ok
             5 - hang",
        ));
        tokio::time::sleep(Duration::from_millis(1)).await;
        let cancelled = [Ticket(2), Ticket(2), Ticket(5), Ticket(77)];
        rig.dispatcher.cancel(&cancelled);
        assert_eq!(sorted(rig.next(2).await), ["2 cancelled", "5 cancelled"]);
        rig.dispatcher.cancel(&[Ticket(1), Ticket(1)]);
        assert_eq!(rig.next(3).await, ["1 cancelled", "3 cancelled", "4 done"]);
        rig.dispatcher.cancel(&[Ticket(1), Ticket(4)]);
        rig.dispatcher.submit(works("6 a ok"));
        assert_eq!(rig.next(1).await, ["6 done"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_in_a_port_is_one_failed_work() {
        let mut rig = Rig::new(Limits::default());
        rig.dispatcher.submit(works(
            "1 a panic
2 a+ never
3 a ok",
        ));
        assert_eq!(rig.next(3).await, ["1 broken", "2 cancelled", "3 done"]);
    }

    #[tokio::test(start_paused = true)]
    async fn more_than_the_bound_is_refused_and_breaks_its_chain() {
        let mut rig = Rig::new(Limits { inspects: 1, waiting: 2, ..Limits::default() });
        rig.dispatcher.submit(works("0 z sleep 5"));
        rig.dispatcher.submit(works(
            "1 a ok
2 a ok
3 a ok",
        ));
        assert_eq!(rig.next(4).await, ["3 exhausted", "0 done", "1 done", "2 done"]);
        rig.dispatcher.submit(works(
            "4 a+ never
5 a ok",
        ));
        assert_eq!(rig.next(2).await, ["4 cancelled", "5 done"]);
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_answers_everything() {
        let mut rig = Rig::new(Limits::default());
        rig.dispatcher.submit(works(
            "1 a sleep 100
2 a ok
3 b hang
4 b+ ok",
        ));
        tokio::time::sleep(Duration::from_millis(1)).await;
        let dispatcher = rig.dispatcher.clone();
        let ended = tokio::spawn(async move { dispatcher.shutdown(Duration::from_secs(1)).await });
        let expect = ["2 cancelled", "4 cancelled", "1 done", "3 cancelled"];
        assert_eq!(rig.next(4).await, expect);
        ended.await.unwrap();
        rig.dispatcher.submit(works("5 a ok"));
        assert_eq!(rig.next(1).await, ["5 cancelled"]);
        drop(rig.dispatcher);
        assert_eq!(rig.ingress.recv().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_ends_when_nobody_listens_any_more() {
        let rig = Rig::new(Limits::default());
        rig.dispatcher.submit(works(
            "1 a hang
2 a ok
3 - ok",
        ));
        drop(rig.ingress);
        rig.dispatcher.shutdown(Duration::from_millis(5)).await;
    }

    /// Many works under random cancels: each ticket is answered exactly once, order holds within every lane.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn every_ticket_is_answered_exactly_once_under_load() {
        const WORKS: u64 = 20_000;
        let mut rig = Rig::new(Limits { inspects: 8, ..Limits::default() });
        let dispatcher = rig.dispatcher.clone();
        let feeder = tokio::spawn(async move {
            let mut seed = 7_u64;
            let mut random = move |below: u64| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 33) % below
            };
            for first in (0..WORKS).step_by(50) {
                let text: String = (first..first + 50)
                    .map(|ticket| {
                        let chained = if random(3) == 0 { "+" } else { "" };
                        let verb = ["ok", "fail", "ok", "sleep 0"][random(4) as usize];
                        format!(
                            "{ticket} lane{}{chained} {verb}
",
                            random(40)
                        )
                    })
                    .collect();
                dispatcher.submit(works(&text));
                let some: Vec<Ticket> = (0..5).map(|_| Ticket(random(first + 50))).collect();
                dispatcher.cancel(&some);
                tokio::task::yield_now().await;
            }
        });
        let mut answers: BTreeMap<u64, u32> = BTreeMap::new();
        for line in rig.next(WORKS as usize).await {
            let ticket = line.split(' ').next().unwrap().parse().unwrap();
            *answers.entry(ticket).or_default() += 1;
        }
        feeder.await.unwrap();
        assert_eq!(answers.len() as u64, WORKS);
        assert!(answers.values().all(|times| *times == 1));
        let stats = rig.dispatcher.stats();
        assert_eq!(stats.lanes, 0);
        let kind = &stats.kinds[Kind::Inspect as usize];
        assert_eq!((kind.waiting, kind.running), (0, 0));
        assert_eq!(kind.done + kind.failed + kind.cancelled, WORKS);
    }

    #[test]
    fn limits_are_never_zero() {
        let limits = Limits { pulls: 0, ..Limits::default() };
        assert_eq!(limits.of(Kind::Pull), 1);
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
        let container = ContainerId::from("c");
        let stop = CriEffect::StopContainer { id: container, grace_seconds: 1 };
        assert_eq!(Kind::of(&Effect::Cri(stop)), Kind::Stop);
    }
}
