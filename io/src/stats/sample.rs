//! What one look at a cgroup shows. Plain numbers in the units of the API; no reading here.

use components::time::{Mono, Wall};

/// How much is read of a cgroup.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Depth {
    /// CPU, memory and swap.
    Usage,
    /// Pressure, processes and the network as well.
    Summary,
    /// Everything that the page of container metrics shows.
    Detail,
}

/// One look at one cgroup.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Sample {
    /// When, for rates.
    pub(super) mono: Mono,
    /// When, to be shown.
    pub(super) wall: Wall,
    /// When the cgroup was made, as far as the file system tells.
    pub(super) created: Option<Wall>,
    /// CPU.
    pub(super) cpu: Option<Cpu>,
    /// Memory.
    pub(super) memory: Option<Memory>,
    /// Tasks, and how many there may be.
    pub(super) tasks: Option<(u64, Option<u64>)>,
    /// Processes of the cgroup itself.
    pub(super) processes: Vec<u32>,
    /// Pressure, where the kernel counts it by cgroup.
    pub(super) pressure: Option<Pressures>,
    /// Bytes and operations by device.
    pub(super) io: Vec<DeviceIo>,
    /// What its processes have open; of cgroups with processes only.
    pub(super) open: Option<Open>,
}

/// What processes have open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Open {
    /// File descriptors.
    pub(super) files: u64,
    /// Sockets among them.
    pub(super) sockets: u64,
    /// How many files the first process may open; `None` for no limit.
    pub(super) limit: Option<u64>,
}

/// CPU time and what bounds it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Cpu {
    /// Nanoseconds spent.
    pub(super) usage: u64,
    /// Nanoseconds spent in user mode.
    pub(super) user: u64,
    /// Nanoseconds spent in the kernel.
    pub(super) system: u64,
    /// Enforcement periods: all, throttled ones, nanoseconds throttled.
    pub(super) throttling: Option<(u64, u64, u64)>,
    /// Weight as shares.
    pub(super) shares: Option<u64>,
    /// Quota in microseconds a period.
    pub(super) quota: Option<u64>,
    /// Period in microseconds.
    pub(super) period: Option<u64>,
}

/// Memory and what bounds it, in bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Memory {
    /// Everything in use.
    pub(super) usage: u64,
    /// Anonymous memory, of all below.
    pub(super) rss: u64,
    /// Page cache.
    pub(super) cache: u64,
    /// Mapped files.
    pub(super) mapped: u64,
    /// Swapped out.
    pub(super) swap: u64,
    /// Files not used lately, of all below.
    pub(super) inactive_file: u64,
    /// Files used lately, of all below.
    pub(super) active_file: u64,
    /// Memory of the kernel.
    pub(super) kernel: u64,
    /// Dirty files.
    pub(super) dirty: u64,
    /// Files being written.
    pub(super) writeback: u64,
    /// Faults: minor and major, of the cgroup alone where it can be told.
    pub(super) faults: (u64, u64),
    /// The same of all below.
    pub(super) all_faults: (u64, u64),
    /// Refaults of files and of anonymous memory.
    pub(super) refaults: (u64, u64),
    /// Pages scanned and reclaimed.
    pub(super) reclaim: (u64, u64),
    /// Most that was ever in use.
    pub(super) highest: u64,
    /// How often the limit was hit.
    pub(super) limit_hits: u64,
    /// Events `high` and `max`.
    pub(super) events: (u64, u64),
    /// Processes killed for memory.
    pub(super) oom_kills: u64,
    /// Limit; `None` for none.
    pub(super) limit: Option<u64>,
    /// Limit of swap; `None` for none.
    pub(super) swap_limit: Option<u64>,
    /// What is kept from reclaim.
    pub(super) reservation: u64,
}

impl Memory {
    /// What can't be had back without harm: usage less files that were not used lately.
    #[must_use]
    pub(super) const fn working_set(&self) -> u64 {
        self.usage.saturating_sub(self.inactive_file)
    }
}

/// Time lost to waiting, of one kind.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Stalls {
    /// Microseconds in all.
    pub(super) total: u64,
    /// Percent of the last 10 s.
    pub avg10: f64,
    /// Percent of the last 60 s.
    pub avg60: f64,
    /// Percent of the last 300 s.
    pub avg300: f64,
}

/// Pressure on one resource.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Pressure {
    /// At least one task waited.
    pub(super) some: Stalls,
    /// All tasks waited.
    pub(super) full: Stalls,
}

/// Pressure on each resource.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Pressures {
    /// CPU.
    pub(super) cpu: Pressure,
    /// Memory.
    pub(super) memory: Pressure,
    /// Input and output.
    pub(super) io: Pressure,
}

/// A network device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Interface {
    /// Name.
    pub(super) name: String,
    /// Bytes received.
    pub(super) rx_bytes: u64,
    /// Packets received.
    pub(super) rx_packets: u64,
    /// Errors in receiving.
    pub(super) rx_errors: u64,
    /// Received packets that were dropped.
    pub(super) rx_dropped: u64,
    /// Bytes sent.
    pub(super) tx_bytes: u64,
    /// Packets sent.
    pub(super) tx_packets: u64,
    /// Errors in sending.
    pub(super) tx_errors: u64,
    /// Packets dropped before they were sent.
    pub(super) tx_dropped: u64,
}

/// Input and output of one block device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct DeviceIo {
    /// `MAJOR:MINOR`.
    pub(super) device: String,
    /// Bytes read and written.
    pub(super) bytes: (u64, u64),
    /// Operations of reading and writing.
    pub(super) operations: (u64, u64),
}
