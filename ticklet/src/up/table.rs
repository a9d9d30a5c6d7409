//! The live table of `ticklet up`: one line per pod, as text or JSON. Pure: a snapshot in, text out.

use components::snapshot::{PodView, Snapshot};
use components::status::{Phase, ReportedState};
use components::time::Wall;
use std::fmt::Write;

/// One row.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub(crate) struct Row {
    /// `namespace/name`.
    pub(crate) pod: String,
    /// What `kubectl get` shows as STATUS: a waiting reason where there is one, else the phase.
    pub(crate) status: String,
    /// Phase.
    pub(crate) phase: &'static str,
    /// Ready containers.
    pub(crate) ready: usize,
    /// Main containers.
    pub(crate) containers: usize,
    /// Restarts of all containers.
    pub(crate) restarts: u32,
    /// Seconds since the pod was first seen.
    pub(crate) age_seconds: i64,
    /// Last notable thing.
    pub(crate) last_event: String,
    /// Pod address; empty when there is none.
    pub(crate) ip: String,
}

/// Rows of a snapshot, by namespace and name. Pods that only the runtime knows are left out.
pub(crate) fn rows(snapshot: &Snapshot) -> Vec<Row> {
    let mut rows: Vec<Row> = snapshot.pods().filter(|p| p.spec.is_some()).map(|p| row(p, snapshot.wall)).collect();
    rows.sort_by(|a, b| a.pod.cmp(&b.pod));
    rows
}

fn row(pod: &PodView, now: Wall) -> Row {
    let status = &pod.status;
    let waiting = status.containers.iter().chain(&status.init_containers).find_map(|c| match &c.state {
        ReportedState::Waiting { reason, .. } if status.phase != Phase::Pending || reason != "PodInitializing" => {
            Some(reason.clone())
        }
        _ => None,
    });
    let shown = match status.phase {
        Phase::Succeeded => "Completed".to_owned(),
        Phase::Failed => "Error".to_owned(),
        Phase::Pending | Phase::Running => waiting.unwrap_or_else(|| status.phase.as_str().to_owned()),
    };
    let ending = pod.stage >= components::world::Stage::Terminating && !status.phase.is_terminal();
    Row {
        pod: format!("{}/{}", pod.namespace, pod.name),
        status: if ending { "Terminating".to_owned() } else { shown },
        phase: status.phase.as_str(),
        ready: status.containers.iter().filter(|c| c.ready).count(),
        containers: status.containers.len(),
        restarts: status.containers.iter().chain(&status.init_containers).map(|c| c.restart_count).sum(),
        age_seconds: if status.start_time == Wall(0) {
            0
        } else {
            (now.0 - status.start_time.0).max(0) / 1_000_000_000
        },
        last_event: pod.last_event.to_string(),
        ip: status.pod_ips.first().cloned().unwrap_or_default(),
    }
}

/// The rows as a table, at most `width` characters a line.
pub(crate) fn render(rows: &[Row], width: usize) -> String {
    let mut out = String::new();
    let name = rows.iter().map(|r| r.pod.len()).max().unwrap_or(0).max("POD".len());
    let status = rows.iter().map(|r| r.status.len()).max().unwrap_or(0).max("STATUS".len());
    let mut line = |text: String| {
        let cut: String = text.trim_end().chars().take(width).collect();
        // Writing into a String cannot fail.
        let _ = writeln!(out, "{cut}");
    };
    line(format!(
        "{:name$}  {:status$}  {:5}  {:8}  {:5}  {}",
        "POD", "STATUS", "READY", "RESTARTS", "AGE", "LAST EVENT"
    ));
    for row in rows {
        let ready = format!("{}/{}", row.ready, row.containers);
        let event = row.last_event.replace(['\n', '\r'], " ");
        line(format!(
            "{:name$}  {:status$}  {ready:5}  {:8}  {:5}  {event}",
            row.pod,
            row.status,
            row.restarts,
            age(row.age_seconds)
        ));
    }
    out
}

/// `7s`, `3m4s`, `2h5m`.
fn age(seconds: i64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m{}s", seconds / 60, seconds % 60),
        _ => format!("{}h{}m", seconds / 3600, seconds % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_aligned_and_cut_to_the_width() {
        let row = Row {
            pod: "default/web-node".to_owned(),
            status: "Running".to_owned(),
            phase: "Running",
            ready: 1,
            containers: 1,
            restarts: 2,
            age_seconds: 184,
            last_event: "Started container web\nand more".to_owned(),
            ip: String::new(),
        };
        let text = render(&[row], 72);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "POD               STATUS   READY  RESTARTS  AGE    LAST EVENT");
        assert_eq!(lines[1], "default/web-node  Running  1/1           2  3m4s   Started container web");
    }
}
