//! What all calls share: the model behind a lock, the real clock, open event streams, faults on demand.

use super::{Options, logs, wire};
use crate::runtime::Runtime;
use crate::runtime::model::{Refusal, RuntimeEvent};
use components::edge::FailureClass;
use components::edge::cri::ContainerChange;
use components::ids::{ContainerId, SandboxId};
use components::time::{Mono, Now, Wall};
use proto::runtime::v1 as cri;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{Notify, mpsc, watch};
use tonic::Status;

/// Events that wait for a slow reader before it loses some.
const EVENT_QUEUE: usize = 16_384;

/// One open event stream.
type Subscriber = mpsc::Sender<Result<cri::ContainerEventResponse, Status>>;

/// What is served.
pub(crate) struct Shared {
    /// As started.
    pub(crate) options: Options,
    /// Woken when the next due time may have changed.
    pub(crate) timer_changed: Notify,
    /// Counts endings of containers, for calls that wait for one.
    pub(crate) endings: watch::Sender<u64>,
    started: Instant,
    state: Mutex<State>,
}

/// The model and the wire form of its objects.
pub(crate) struct State {
    /// The model.
    pub(crate) runtime: Runtime,
    /// What `RunPodSandbox` was given.
    pub(crate) sandboxes: FxHashMap<SandboxId, Arc<cri::RunPodSandboxRequest>>,
    /// What `CreateContainer` was given, without environment.
    pub(crate) containers: FxHashMap<ContainerId, Arc<cri::ContainerConfig>>,
    /// Faults by call name.
    pub(crate) faults: BTreeMap<String, Fault>,
    /// Calls by name since the start, refused ones too.
    pub(crate) calls: BTreeMap<String, u64>,
    /// Every call is refused until then.
    pub(crate) down_until: Option<Mono>,
    subscribers: Vec<Subscriber>,
}

/// A fault set for the next calls of one name.
#[derive(Debug, Clone)]
pub(crate) struct Fault {
    /// Calls it still applies to.
    pub(crate) left: u32,
    /// `None` hangs for ever; otherwise the message of the failure.
    pub(crate) message: Option<String>,
}

impl Shared {
    pub(crate) fn new(options: Options) -> Self {
        let seed = unix_nanos().unsigned_abs();
        let mut runtime = Runtime::new(seed, true);
        for image in &options.images {
            runtime.images.add(image);
        }
        Self {
            options,
            timer_changed: Notify::new(),
            endings: watch::channel(0).0,
            started: Instant::now(),
            state: Mutex::new(State {
                runtime,
                sandboxes: FxHashMap::default(),
                containers: FxHashMap::default(),
                faults: BTreeMap::new(),
                calls: BTreeMap::new(),
                down_until: None,
                subscribers: Vec::new(),
            }),
        }
    }

    /// Both clocks.
    pub(crate) fn now(&self) -> Now {
        let mono = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Now { mono: Mono(mono), wall: Wall(unix_nanos()) }
    }

    /// The state, locked.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // The model holds no half-done change over a call that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs one change of the model and sends out the events it brought.
    pub(crate) fn change<T>(&self, f: impl FnOnce(&mut State, Now) -> T) -> T {
        let now = self.now();
        let mut state = self.lock();
        let before = state.runtime.next_due();
        let result = f(&mut state, now);
        let ended = state.publish_events();
        let moved = state.runtime.next_due() != before;
        drop(state);
        if moved {
            self.timer_changed.notify_one();
        }
        if ended {
            self.endings.send_modify(|n| *n += 1);
        }
        result
    }

    /// Lets due things happen; returns when the next is due.
    pub(crate) fn advance(&self) -> Option<Mono> {
        let now = self.now();
        let mut state = self.lock();
        state.runtime.advance(now);
        let ended = state.publish_events();
        let due = state.runtime.next_due();
        drop(state);
        if ended {
            self.endings.send_modify(|n| *n += 1);
        }
        due
    }

    /// What every call passes first: latency and faults.
    pub(crate) async fn gate(&self, call: &str) -> Result<(), Status> {
        if !self.options.latency.is_zero() {
            tokio::time::sleep(self.options.latency).await;
        }
        let verdict = {
            let mut state = self.lock();
            state.count(call);
            state.fault(call, self.now().mono)
        };
        match verdict {
            None => Ok(()),
            Some(Some(status)) => Err(status),
            Some(None) => std::future::pending().await,
        }
    }

    /// A new event stream.
    pub(crate) fn subscribe(&self) -> mpsc::Receiver<Result<cri::ContainerEventResponse, Status>> {
        let (sender, receiver) = mpsc::channel(EVENT_QUEUE);
        self.lock().subscribers.push(sender);
        receiver
    }

    /// Ends all event streams.
    pub(crate) fn close_streams(&self) {
        self.lock().subscribers.clear();
    }
}

impl State {
    fn count(&mut self, call: &str) {
        match self.calls.get_mut(call) {
            Some(count) => *count += 1,
            None => {
                self.calls.insert(call.to_owned(), 1);
            }
        }
    }

    /// `None`: no fault. `Some(None)`: hangs.
    fn fault(&mut self, call: &str, now: Mono) -> Option<Option<Status>> {
        if self.down_until.is_some_and(|until| now < until) {
            return Some(Some(Status::unavailable("connection refused: the simulated runtime is down")));
        }
        let fault = self.faults.get_mut(call)?;
        fault.left -= 1;
        let message = fault.message.clone();
        if fault.left == 0 {
            self.faults.remove(call);
        }
        Some(message.map(Status::unknown))
    }

    /// Sends the model's events to all streams and writes what logs get; true when a container ended.
    fn publish_events(&mut self) -> bool {
        let events = self.runtime.take_events();
        let mut ended = false;
        for event in events {
            ended |= event.change == ContainerChange::Stopped;
            self.log(&event);
            if !self.subscribers.is_empty() {
                let message = wire::event(self, &event);
                self.subscribers
                    .retain(|s| !matches!(s.try_send(Ok(message.clone())), Err(mpsc::error::TrySendError::Closed(_))));
            }
            if event.change == ContainerChange::Deleted {
                self.containers.remove(&event.id);
                self.sandboxes.remove(&SandboxId(Arc::clone(&event.id.0)));
            }
        }
        ended
    }

    fn log(&self, event: &RuntimeEvent) {
        let Some(container) = self.runtime.containers().get(&event.id) else {
            return;
        };
        let Some(path) = self.log_path(&container.id) else {
            return;
        };
        let text = match event.change {
            ContainerChange::Started => format!("{} started", container.request.name),
            ContainerChange::Stopped => format!("{} ended with code {}", container.request.name, container.exit_code),
            ContainerChange::Created | ContainerChange::Deleted => return,
        };
        logs::append(&path, event.at, &text);
    }

    /// Full path of a container's log; `None` when none was asked for.
    pub(crate) fn log_path(&self, id: &ContainerId) -> Option<String> {
        let container = self.runtime.containers().get(id)?;
        let sandbox = self.runtime.sandboxes().get(&container.sandbox)?;
        let (directory, path) = (&sandbox.request.log_directory, &container.request.log_path);
        (!directory.is_empty() && !path.is_empty()).then(|| format!("{directory}/{path}"))
    }
}

/// The gRPC form of a refusal.
pub(crate) fn status(refusal: Refusal) -> Status {
    match refusal.class {
        FailureClass::NotFound => Status::not_found(refusal.message),
        FailureClass::AlreadyExists => Status::already_exists(refusal.message),
        FailureClass::Unavailable => Status::unavailable(refusal.message),
        FailureClass::Unimplemented => Status::unimplemented(refusal.message),
        FailureClass::Exhausted => Status::resource_exhausted(refusal.message),
        FailureClass::Invalid => Status::invalid_argument(refusal.message),
        FailureClass::Denied => Status::permission_denied(refusal.message),
        FailureClass::Garbage | FailureClass::Other => Status::unknown(refusal.message),
    }
}

/// Missing objects count as stopped and removed, as on containerd.
pub(crate) fn found_or_gone(result: Result<(), Refusal>) -> Result<(), Status> {
    match result {
        Err(refusal) if refusal.class != FailureClass::NotFound => Err(status(refusal)),
        _ => Ok(()),
    }
}

fn unix_nanos() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
