//! Keeps the inputs and decisions of every tick, so that a run can be written as a trace.

use components::edge::store::Record;
use components::edge::{Ingress, Work};
use components::ids::Ticket;
use components::node::Boot;
use components::time::Now;
use engine::TickOutput;

/// One tick.
#[derive(Debug, Clone)]
pub struct TickRecord {
    /// Number of the tick.
    pub tick: u64,
    /// Its clocks.
    pub now: Now,
    /// What came in.
    pub inputs: Vec<Ingress>,
    /// Records to be made durable.
    pub durable: Vec<Record>,
    /// Works no longer wanted.
    pub cancels: Vec<Ticket>,
    /// Works.
    pub works: Vec<Work>,
}

/// One run of the agent, from its start to its end.
#[derive(Debug, Clone)]
pub struct RunRecord {
    /// What it began with.
    pub boot: Boot,
    /// Its ticks.
    pub ticks: Vec<TickRecord>,
}

/// Collects runs when it is on.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    /// Keep records.
    pub on: bool,
    /// What was kept.
    pub runs: Vec<RunRecord>,
    open: Option<(Now, Vec<Ingress>)>,
}

impl Recorder {
    /// The agent starts.
    pub fn boot(&mut self, boot: &Boot) {
        if self.on {
            self.runs.push(RunRecord { boot: boot.clone(), ticks: Vec::new() });
        }
    }

    /// A tick begins.
    pub fn tick(&mut self, now: Now, inputs: &[Ingress]) {
        if self.on {
            self.open = Some((now, inputs.to_vec()));
        }
    }

    /// A tick ends.
    pub fn output(&mut self, output: &TickOutput) {
        let (Some((now, inputs)), Some(run)) = (self.open.take(), self.runs.last_mut()) else { return };
        run.ticks.push(TickRecord {
            tick: output.tick,
            now,
            inputs,
            durable: output.durable.clone(),
            cancels: output.cancels.clone(),
            works: output.works.clone(),
        });
    }
}
