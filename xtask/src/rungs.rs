//! The rungs of tests: builds every test program once, sorts them by rung, runs them and counts.
//!
//! Test programs are started here and not by `cargo test`, so that each is counted on its rung and each has a deadline.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tests::lab::Runtime;

use crate::install;
use crate::run::{cargo, output, run as run_command};
use crate::step::{Counts, Report};

/// A test program that runs longer hangs: the slowest one takes a few minutes.
const DEADLINE: Duration = Duration::from_secs(30 * 60);

/// Where a test belongs; the lowest rung that can show the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rung {
    Unit,
    Simulator,
    Replay,
    Containerd,
    Reference,
    Cluster,
}

/// One built test program.
pub(crate) struct Program {
    rung: Rung,
    name: String,
    manifest_dir: PathBuf,
    executable: PathBuf,
}

impl Program {
    /// The name of one of its cases: those with an API server say so.
    pub(crate) fn case(&self, case: &str) -> String {
        if self.is_cluster() { format!("cluster: {case}") } else { case.to_owned() }
    }

    /// Whether it needs a control plane.
    pub(crate) fn is_cluster(&self) -> bool {
        self.rung == Rung::Cluster
    }
}

/// Steps that only need what cargo built.
const PLAIN: [(&str, Rung); 3] = [("unit", Rung::Unit), ("simulator", Rung::Simulator), ("replay", Rung::Replay)];

/// Steps that need the lab: name, label, runtime, rung.
const REAL: [(&str, &str, Runtime, Rung); 4] = [
    ("containerd2", "containerd 2.x", Runtime::Containerd2, Rung::Containerd),
    ("containerd1", "containerd 1.6", Runtime::Containerd1, Rung::Containerd),
    (REFERENCE, "reference", Runtime::Containerd2, Rung::Reference),
    (CLUSTER, "cluster", Runtime::Containerd2, Rung::Cluster),
];

/// The step that needs the reference kubelet: its build takes long, so it runs only when it is named.
const REFERENCE: &str = "reference";

/// The step with a control plane: its build takes long, so it runs only when it is named.
const CLUSTER: &str = "cluster";

/// The variable that selects the tests with a control plane.
pub(crate) const CLUSTER_VARIABLE: &str = "TICKLET_CLUSTER";

/// The variable with the reference kubelet's program.
pub(crate) const REFERENCE_VARIABLE: &str = "TICKLET_REFERENCE";

/// Builds and runs the rungs that were asked for.
pub(crate) fn run(report: &mut Report, filter: &[String]) {
    let plain = PLAIN.iter().any(|(step, _)| report.wants(step));
    let real: Vec<_> = REAL.into_iter().filter(|(step, ..)| wants(report, step)).collect();
    if !plain && real.is_empty() {
        return;
    }
    // The Go tools build beside cargo's work: both have long stretches that use one core.
    let tools = (!real.is_empty()).then(|| std::thread::spawn(tests::tools::ensure_lab));
    let mut programs = Vec::new();
    report.always("build", "the compiler names the error", |_| {
        programs = build()?;
        Ok(())
    });
    if plain {
        run_plain(report, &programs, filter);
    }
    let Some(tools) = tools else { return };
    report.always("tools", "needs `go`, apt-get and a network", |_| match tools.join() {
        Ok(end) => end,
        Err(_) => bail!("the build of the test tools panicked"),
    });
    for (step, label, runtime, rung) in real {
        report.always(step, "the failed tests are named above; each says where its logs are", |report| {
            let end = run_real(report, label, &programs, (runtime, rung), filter);
            install::sweep()?;
            end
        });
    }
}

/// Whether a step was asked for; those with long builds only by their names.
fn wants(report: &Report, step: &str) -> bool {
    if step == REFERENCE || step == CLUSTER { report.names(step) } else { report.wants(step) }
}

/// The rungs without a runtime.
fn run_plain(report: &mut Report, programs: &[Program], filter: &[String]) {
    let mut env = Vec::new();
    if report.wants("unit") {
        report.always("cri-api", "needs `go` and a network", |_| {
            env.push(("TICKLET_CRI_API_DIR", tests::tools::cri_api()?));
            Ok(())
        });
    }
    for (step, rung) in PLAIN {
        report.step(step, "the failed tests are named above", |report| {
            run_rung(report, step, programs, rung, filter, &env)
        });
    }
}

/// One rung on a runtime.
fn run_real(
    report: &mut Report,
    label: &'static str,
    programs: &[Program],
    (runtime, rung): (Runtime, Rung),
    filter: &[String],
) -> Result<()> {
    println!("{}", runtime.check()?);
    let mut env = vec![(Runtime::VARIABLE, OsString::from(runtime.name()))];
    if rung == Rung::Reference {
        let program = match std::env::var_os(REFERENCE_VARIABLE) {
            Some(program) => program,
            None => tests::tools::kubelet()?.into_os_string(),
        };
        env.push((REFERENCE_VARIABLE, program));
        tests::tools::ensure_cluster()?;
    }
    if rung == Rung::Cluster {
        tests::tools::ensure_cluster()?;
        env.push((CLUSTER_VARIABLE, OsString::from("1")));
    }
    run_rung(report, label, programs, rung, filter, &env)
}

/// Builds everything, the control plane too, and gives the test programs that hold cases.
pub(crate) fn case_programs() -> Result<Vec<Program>> {
    tests::tools::ensure_cluster()?;
    let hold_cases = |program: &Program| matches!(program.rung, Rung::Containerd | Rung::Cluster);
    Ok(build()?.into_iter().filter(hold_cases).collect())
}

/// Runs a test program with a filter; the lines it printed. That tests failed is told by the lines only.
pub(crate) fn run_and_list(
    program: &Program,
    filter: &[String],
    env: &[(&str, impl AsRef<OsStr>)],
) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    run_program(program, filter, env, |line| lines.push(line.to_owned()))?;
    Ok(lines)
}

/// Builds all test programs and the binaries they drive, with the same features and flags.
fn build() -> Result<Vec<Program>> {
    run_command(cargo(&["build", "--workspace", "--bins", "--locked"]))?;
    let json =
        output(cargo(&["test", "--workspace", "--no-run", "--locked", "--message-format=json-render-diagnostics"]))?;
    json.lines().filter_map(|line| program(line).transpose()).collect()
}

/// The test program that one line of cargo's messages announces, if any.
fn program(line: &str) -> Result<Option<Program>> {
    let message: Value = serde_json::from_str(line).with_context(|| format!("cargo said `{line}`"))?;
    let (Some(executable), Some(true)) = (message["executable"].as_str(), message["profile"]["test"].as_bool()) else {
        return Ok(None);
    };
    let manifest = Path::new(message["manifest_path"].as_str().context("a message without manifest_path")?);
    let manifest_dir = manifest.parent().context("a manifest without a folder")?.to_path_buf();
    let package = manifest_dir.file_name().context("a package without a folder")?.to_string_lossy().into_owned();
    let target = message["target"]["name"].as_str().context("a message without a target")?;
    Ok(Some(Program {
        rung: rung_of(&package, target),
        name: if package == target { package } else { format!("{package}/{target}") },
        manifest_dir,
        executable: executable.into(),
    }))
}

/// The rung of a target, by where it lies and what it is called.
fn rung_of(package: &str, target: &str) -> Rung {
    match (package, target) {
        ("tests", "containerd") => Rung::Containerd,
        ("tests", "reference") => Rung::Reference,
        ("tests", "cluster") => Rung::Cluster,
        ("sim", _) => Rung::Simulator,
        (_, name) if name.starts_with("sim_") || name == "simulator" => Rung::Simulator,
        (_, name) if name.starts_with("replay") || name.starts_with("golden") => Rung::Replay,
        _ => Rung::Unit,
    }
}

/// Runs the programs of one rung and counts their tests under its label.
fn run_rung(
    report: &mut Report,
    label: &'static str,
    programs: &[Program],
    rung: Rung,
    filter: &[String],
    env: &[(&str, impl AsRef<OsStr>)],
) -> Result<()> {
    let mut failures = Vec::new();
    let mut sum = Counts::default();
    for program in programs.iter().filter(|program| program.rung == rung) {
        println!("--- {}", program.name);
        match run_program(program, filter, env, |_| ()) {
            Ok(counts) if counts.failed == 0 => sum.add(counts),
            Ok(counts) => {
                sum.add(counts);
                failures.push(format!("{}: {} failed", program.name, counts.failed));
            }
            Err(error) => {
                sum.add(Counts { passed: 0, failed: 1 });
                failures.push(format!("{}: {error:#}", program.name));
            }
        }
    }
    report.count(label, sum);
    if sum == Counts::default() {
        bail!("no test ran");
    }
    if !failures.is_empty() {
        bail!("{}", failures.join("; "));
    }
    Ok(())
}

/// Runs one test program to its end and reads the counts off its summary.
fn run_program(
    program: &Program,
    filter: &[String],
    env: &[(&str, impl AsRef<OsStr>)],
    line: impl FnMut(&str),
) -> Result<Counts> {
    let mut command = Command::new(&program.executable);
    command.args(filter).current_dir(&program.manifest_dir).env("CARGO_MANIFEST_DIR", &program.manifest_dir);
    command.envs(env.iter().map(|(key, value)| (key, value))).stdout(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {}", program.executable.display()))?;
    let summary = follow(&mut child, line)?;
    let status = child.wait()?;
    let Some(summary) = summary else { bail!("ended with {status} and no summary") };
    if summary.ignored > 0 {
        bail!("{} ignored tests: a test that does not run is no test", summary.ignored);
    }
    if !status.success() && summary.counts.failed == 0 {
        bail!("ended with {status} though no test failed");
    }
    Ok(summary.counts)
}

/// Echoes the child's output until it ends or the deadline passes; returns the summary it printed.
fn follow(child: &mut Child, mut heard: impl FnMut(&str)) -> Result<Option<Summary>> {
    let stdout = child.stdout.take().context("no output pipe")?;
    let lines = lines_of(stdout);
    let end = Instant::now() + DEADLINE;
    let mut summary = None;
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                summary = Summary::parse(&line).or(summary);
                println!("{line}");
                heard(&line);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(summary),
            Err(RecvTimeoutError::Timeout) => {
                child.kill()?;
                child.wait()?;
                bail!("ran into its deadline of {} minutes", DEADLINE.as_secs() / 60);
            }
        }
    }
}

/// The lines of a stream, read by a thread of their own so that waiting for them can have a deadline.
fn lines_of(stream: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).split(b'\n').map_while(std::io::Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// The line with which the test harness ends.
struct Summary {
    counts: Counts,
    ignored: usize,
}

impl Summary {
    /// Reads `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
    fn parse(line: &str) -> Option<Self> {
        let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
        let number = |word: &str| {
            let part = numbers.split("; ").find_map(|part| part.strip_suffix(word))?;
            part.trim().parse().ok()
        };
        let counts = Counts { passed: number(" passed")?, failed: number(" failed")? };
        Some(Self { counts, ignored: number(" ignored")? })
    }
}

#[cfg(test)]
mod tests_of_rungs {
    use super::*;

    #[test]
    fn summaries_are_read() {
        let line = "test result: FAILED. 3 passed; 1 failed; 2 ignored; 0 measured; 5 filtered out; finished in 0.00s";
        let summary = Summary::parse(line).unwrap();
        assert_eq!(summary.counts, Counts { passed: 3, failed: 1 });
        assert_eq!(summary.ignored, 2);
        assert!(Summary::parse("test rank ... ok").is_none());
    }

    #[test]
    fn targets_know_their_rung() {
        assert_eq!(rung_of("systems", "systems"), Rung::Unit);
        assert_eq!(rung_of("sim", "scenarios"), Rung::Simulator);
        assert_eq!(rung_of("tests", "replay"), Rung::Replay);
        assert_eq!(rung_of("tests", "golden_trace"), Rung::Replay);
        assert_eq!(rung_of("tests", "containerd"), Rung::Containerd);
    }
}
