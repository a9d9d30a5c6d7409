//! The table of a race, its ratios, and whether the goals are met.

use serde_json::{Value, json};

use super::laps::Laps;

/// One row of the table.
struct Row {
    name: &'static str,
    unit: &'static str,
    value: fn(&Laps) -> f64,
    /// The reference's figure must be at least so many times ticklet's.
    goal: Option<f64>,
}

const ROWS: [Row; 13] = [
    Row { name: "fill: all containers running", unit: "s", value: |l| l.fill_seconds, goal: Some(10.0) },
    Row { name: "fill: CPU", unit: "s", value: |l| l.fill_cpu, goal: Some(20.0) },
    Row { name: "fill: CPU per pod", unit: "ms", value: |l| l.fill_cpu * 1e3 / l.pods.max(1.0), goal: None },
    Row { name: "fill: CRI calls per pod", unit: "", value: |l| l.fill_calls / l.pods.max(1.0), goal: None },
    Row { name: "steady: CPU of one core", unit: "%", value: |l| l.steady_cpu_percent, goal: Some(10.0) },
    Row { name: "steady: resident memory", unit: "MiB", value: |l| l.steady_rss, goal: Some(4.0) },
    Row { name: "peak: resident memory", unit: "MiB", value: |l| l.peak_rss, goal: None },
    Row { name: "steady: probes", unit: "/s", value: |l| l.probes_per_second, goal: None },
    Row { name: "steady: CRI calls", unit: "/s", value: |l| l.steady_calls_per_second, goal: None },
    Row { name: "steady: threads", unit: "", value: |l| l.threads, goal: None },
    Row { name: "restart: all pods reported", unit: "s", value: |l| l.restart_seconds, goal: None },
    Row { name: "restart: CPU", unit: "s", value: |l| l.restart_cpu, goal: None },
    Row { name: "restart: calls that changed something", unit: "", value: |l| l.restart_touched, goal: None },
];

/// The median of several runs, figure by figure.
pub(super) fn median(runs: &[Laps]) -> Laps {
    let middle = |value: fn(&Laps) -> f64| middle(runs, value);
    Laps {
        pods: middle(|l| l.pods),
        fill_seconds: middle(|l| l.fill_seconds),
        fill_cpu: middle(|l| l.fill_cpu),
        fill_calls: middle(|l| l.fill_calls),
        steady_cpu_percent: middle(|l| l.steady_cpu_percent),
        steady_rss: middle(|l| l.steady_rss),
        peak_rss: middle(|l| l.peak_rss),
        steady_calls_per_second: middle(|l| l.steady_calls_per_second),
        threads: middle(|l| l.threads),
        restart_seconds: middle(|l| l.restart_seconds),
        restart_cpu: middle(|l| l.restart_cpu),
        restart_touched: middle(|l| l.restart_touched),
        probes_per_second: middle(|l| l.probes_per_second),
    }
}

/// The median of one figure.
pub(super) fn middle<T>(runs: &[T], value: fn(&T) -> f64) -> f64 {
    let mut all: Vec<f64> = runs.iter().map(value).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// The table, and the verdicts when there are two to compare.
pub(super) fn lines(racers: &[(&'static str, Laps)], pods: usize) -> Vec<String> {
    let mut out = Vec::new();
    let mut head = format!("\n{:<40}", format!("{pods} static pods, simulated runtime"));
    for (name, _) in racers {
        head += &format!("{name:>14}");
    }
    if racers.len() == 2 {
        head += &format!("{:>10}", "ratio");
    }
    out.push(head);
    for row in &ROWS {
        let mut line = format!("{:<40}", row.name);
        for (_, laps) in racers {
            line += &format!("{:>14}", format!("{} {}", number((row.value)(laps)), row.unit).trim_end());
        }
        if let Some(ratio) = ratio(racers, row) {
            line += &format!("{:>10}", format!("{}x", number(ratio)));
        }
        out.push(line);
    }
    out.push(String::new());
    out.extend(verdicts(racers).into_iter().map(|(name, goal, ratio, met)| {
        let verdict = if met { "goal met" } else { "goal missed" };
        format!("{verdict}: {name}: {}x, wanted at least {goal}x", number(ratio))
    }));
    for (name, laps) in racers {
        let verdict = if laps.restart_touched == 0.0 { "goal met" } else { "goal missed" };
        out.push(format!("{verdict}: {name} touched {} containers on restart, wanted 0", laps.restart_touched));
    }
    out
}

/// The goals as JSON.
pub(super) fn goals_json(racers: &[(&'static str, Laps)]) -> Value {
    let goals = verdicts(racers)
        .into_iter()
        .map(|(name, goal, ratio, met)| json!({"figure": name, "wanted_ratio": goal, "ratio": ratio, "met": met}));
    Value::Array(goals.collect())
}

/// Name, wanted ratio, ratio, and whether it is met.
fn verdicts(racers: &[(&'static str, Laps)]) -> Vec<(&'static str, f64, f64, bool)> {
    let compare = |row: &Row| {
        let (goal, ratio) = (row.goal?, ratio(racers, row)?);
        Some((row.name, goal, ratio, ratio >= goal))
    };
    ROWS.iter().filter_map(compare).collect()
}

/// How many times the first racer's figure is the second's.
fn ratio(racers: &[(&'static str, Laps)], row: &Row) -> Option<f64> {
    let [(_, reference), (_, ours)] = racers else { return None };
    let (reference, ours) = ((row.value)(reference), (row.value)(ours));
    (ours > 0.0).then(|| reference / ours)
}

fn number(value: f64) -> String {
    if value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else if value >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn laps(fill_seconds: f64, fill_cpu: f64, steady_cpu_percent: f64, steady_rss: f64) -> Laps {
        Laps { pods: 500.0, fill_seconds, fill_cpu, steady_cpu_percent, steady_rss, ..Laps::default() }
    }

    #[test]
    fn goals_are_ratios() {
        let racers = [("kubelet", laps(30.0, 20.0, 6.0, 140.0)), ("ticklet", laps(1.5, 2.0, 0.6, 20.0))];
        let met: Vec<bool> = verdicts(&racers).into_iter().map(|(_, _, _, met)| met).collect();
        assert_eq!(met, [true, false, true, true]);
        let text = lines(&racers, 500).join("\n");
        assert!(text.contains("goal missed: fill: CPU: 10x, wanted at least 20x"), "{text}");
        assert!(text.contains("20x"), "{text}");
        assert_eq!(verdicts(&racers[..1]), []);
    }

    #[test]
    fn the_median_is_taken_figure_by_figure() {
        let runs = [laps(3.0, 10.0, 1.0, 5.0), laps(1.0, 30.0, 2.0, 7.0), laps(2.0, 20.0, 9.0, 6.0)];
        assert_eq!(median(&runs), laps(2.0, 20.0, 2.0, 6.0));
    }
}
