//! One racer on a real API server: how soon pods that are created at once are ready there, and how many requests that
//! took. The pods are bound when they are created and have no token, so that nobody but the kubelet works on them.
//!
//! The server's audit log counts the node's requests; a watch says when a pod became ready.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ::tests::cluster::Cluster;
use ::tests::tunables::Tunables;
use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::laps::{Plan, pause, wait};
use super::racer::{Contender, Racer};
use super::runtime::Runtime;
use super::site::{NODE, Site, manifest};

/// Longest wait until the node is ready or all pods are.
const DEADLINE: Duration = Duration::from_secs(300);
/// What the racer still writes after all pods are ready is over by then: the slowest are events.
const SETTLE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(20);

/// Requests of the node are logged when they have been answered.
const POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
  userGroups: [\"system:nodes\"]
- level: None
";

/// What was measured. CPU in seconds.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Laps {
    pub(super) pods: f64,
    /// From the first request to create a pod until the last one is there.
    pub(super) create_seconds: f64,
    /// From the same moment until half of them, and all of them, are ready in the API.
    pub(super) half_ready_seconds: f64,
    pub(super) ready_seconds: f64,
    pub(super) cpu: f64,
    /// Sent until all are ready.
    pub(super) requests_to_ready: f64,
    /// Sent until nothing is left to say: those and the events that wait for `eventRecordQPS`.
    pub(super) requests: f64,
    pub(super) event_requests: f64,
    pub(super) pod_requests: f64,
}

/// Runs one contender on a fresh runtime and a fresh cluster.
pub(super) fn run(contender: &Contender, plan: &Plan<'_>) -> Result<Laps> {
    let _tunables = Tunables::save();
    let mut site = Site::empty(&format!("{}-api", contender.name), plan.pods, plan.keep)?;
    let cluster = start_cluster(site.dir())?;
    if let Some(qps) = plan.qps {
        site.allow_requests(qps)?;
    }
    site.kubeconfig = Some(cluster.kubeconfig("node"));
    let audit = site.dir().join("audit.log");
    let mut runtime = Runtime::start(plan.simulator, &site)?;
    wait(plan, "the simulated runtime answers", Duration::from_secs(30), LOOK, || runtime.ready())?;
    let mut racer = Racer::start(contender, &site)?;
    wait(plan, "the node is ready", DEADLINE, Duration::from_millis(500), || {
        racer.check_alive()?;
        let path = "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}";
        Ok(cluster.kubectl(&["get", "node", NODE, "--ignore-not-found", "-o", path])?.trim() == "True")
    })?;
    // Its first requests have nothing to do with pods.
    pause(plan, Duration::from_secs(5))?;

    let watch = Watch::start(&cluster);
    let (cpu, before) = (racer.cpu()?, requests(&audit)?);
    let began = Instant::now();
    create(&cluster, site.dir(), plan.pods)?;
    let create_seconds = began.elapsed().as_secs_f64();
    wait(plan, "every pod is ready", DEADLINE, LOOK, || {
        racer.check_alive()?;
        Ok(watch.ready().len() >= plan.pods)
    })
    .map_err(|error| error.context(format!("{} are; log of the racer:\n{}", watch.ready().len(), racer.log_tail())))?;
    let at_ready = requests(&audit)?;
    let mut times: Vec<f64> = watch.ready().values().map(|at| at.duration_since(began).as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    pause(plan, SETTLE)?;
    let all = |counts: &BTreeMap<_, f64>| counts.values().sum::<f64>();
    let requests_to_ready = all(&at_ready) - all(&before);
    let mut after = requests(&audit)?;
    for (kind, number) in before {
        *after.entry(kind).or_default() -= number;
    }
    let cpu = racer.cpu()? - cpu;
    for ((verb, what), number) in after.iter().filter(|(_, number)| **number > 0.0) {
        println!("{:>8}  {verb} {what}", number);
    }
    let of = |wanted: &str| after.iter().filter(|((_, what), _)| what.starts_with(wanted)).map(|(_, n)| n).sum();
    Ok(Laps {
        pods: plan.pods as f64,
        create_seconds,
        half_ready_seconds: times.get(times.len() / 2).copied().unwrap_or_default(),
        ready_seconds: times.last().copied().unwrap_or_default(),
        cpu,
        requests_to_ready,
        requests: all(&after),
        event_requests: of("events"),
        pod_requests: of("pods"),
    })
}

fn start_cluster(dir: &Path) -> Result<Cluster> {
    let policy = dir.join("audit.yaml");
    fs::write(&policy, POLICY)?;
    let flags = vec![
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", dir.join("audit.log").display()),
    ];
    let cluster = Cluster::start_with(&dir.join("cluster"), flags)?;
    cluster.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: default}\n")?;
    Ok(cluster)
}

/// Creates all pods over parallel requests: one process, so that it takes as little of the machine as it can.
fn create(cluster: &Cluster, dir: &Path, pods: usize) -> Result<()> {
    let folder = dir.join("bodies");
    fs::create_dir(&folder)?;
    let file = |name: &str| cluster.file(name).display().to_string();
    let mut config = Vec::new();
    for index in 0..pods {
        let mut pod = manifest(index, None);
        if let Some(metadata) = pod["metadata"].as_object_mut() {
            metadata.remove("uid");
        }
        pod["spec"]["nodeName"] = json!(NODE);
        pod["spec"]["automountServiceAccountToken"] = json!(false);
        let body = folder.join(format!("{index}.json"));
        fs::write(&body, pod.to_string())?;
        config.push(format!(
            "url = \"{}/api/v1/namespaces/default/pods\"\ndata = \"@{}\"\nheader = \"Content-Type: application/json\"\n\
             output = \"/dev/null\"\nfail\nsilent\nshow-error\ncacert = \"{}\"\ncert = \"{}\"\nkey = \"{}\"\n",
            cluster.server(),
            body.display(),
            file("ca.crt"),
            file("admin.crt"),
            file("admin.key"),
        ));
    }
    let list = dir.join("create.conf");
    fs::write(&list, config.join("next\n"))?;
    let mut curl = cluster.curl();
    curl.args(["--parallel", "--parallel-max", "30", "--config"]).arg(&list);
    ::tests::process::run(&mut curl, DEADLINE)?.success().map(drop).context("the pods cannot be created")
}

/// Counts of the node's requests by verb and resource, from the server's audit log.
fn requests(audit: &Path) -> Result<BTreeMap<(String, String), f64>> {
    let log = fs::read_to_string(audit).with_context(|| format!("cannot read {}", audit.display()))?;
    let mut counts = BTreeMap::new();
    // The last line may not be whole yet.
    for event in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut what = text(&event["objectRef"]["resource"]);
        if let Some(sub) = event["objectRef"]["subresource"].as_str() {
            what = format!("{what}/{sub}");
        }
        *counts.entry((text(&event["verb"]), what)).or_default() += 1.0;
    }
    Ok(counts)
}

/// A watch of all pods that remembers when each became ready.
struct Watch {
    over: Arc<AtomicBool>,
    curl: Arc<Mutex<Option<Child>>>,
    ready: Arc<Mutex<BTreeMap<String, Instant>>>,
}

impl Watch {
    /// Watches until it is dropped. The server ends a watch whose reader falls behind on a busy machine; the next one
    /// begins with how everything is then.
    fn start(cluster: &Cluster) -> Self {
        let (over, curl, ready) = <(Arc<AtomicBool>, Arc<Mutex<Option<Child>>>, Arc<_>)>::default();
        let watch = Self { over: Arc::clone(&over), curl: Arc::clone(&curl), ready: Arc::clone(&ready) };
        let mut command = cluster.curl();
        command
            .arg("--no-buffer")
            .arg(format!("{}/api/v1/namespaces/default/pods?watch=true&resourceVersion=0", cluster.server()));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        std::thread::spawn(move || {
            while !over.load(Ordering::SeqCst) {
                let Some(out) = begin(&mut command, &curl) else { return };
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    if let Some(name) = became_ready(&line) {
                        locked(&ready).entry(name).or_insert_with(Instant::now);
                    }
                }
                end(&curl);
                std::thread::sleep(LOOK);
            }
        });
        watch
    }

    fn ready(&self) -> BTreeMap<String, Instant> {
        locked(&self.ready).clone()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        // Its reader ends with it.
        self.over.store(true, Ordering::SeqCst);
        end(&self.curl);
    }
}

fn begin(command: &mut Command, curl: &Mutex<Option<Child>>) -> Option<ChildStdout> {
    let mut child = command.spawn().ok()?;
    let out = child.stdout.take();
    *locked(curl) = Some(child);
    out
}

fn end(curl: &Mutex<Option<Child>>) {
    if let Some(mut child) = locked(curl).take() {
        // It may have ended by itself.
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of the pod that an event of the watch shows as ready.
fn became_ready(line: &str) -> Option<String> {
    let event: Value = serde_json::from_str(line).ok()?;
    let object = &event["object"];
    let conditions = object["status"]["conditions"].as_array()?;
    let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
    ready.then(|| object["metadata"]["name"].as_str().map(str::to_owned)).flatten()
}

/// The table of several racers and the goals of this race.
pub(super) fn lines(racers: &[(&'static str, Laps)], pods: usize) -> Vec<String> {
    type Row = (&'static str, fn(&Laps) -> f64, Option<f64>);
    const ROWS: [Row; 8] = [
        ("all created, s", |l| l.create_seconds, None),
        ("half ready in the API, s", |l| l.half_ready_seconds, None),
        ("all ready in the API, s", |l| l.ready_seconds, Some(5.0)),
        ("CPU of the kubelet, s", |l| l.cpu, None),
        ("API requests until all are ready", |l| l.requests_to_ready, Some(2.0)),
        ("API requests with the events after that", |l| l.requests, None),
        ("API requests on pods", |l| l.pod_requests, None),
        ("API requests on events", |l| l.event_requests, None),
    ];
    let mut out = vec![format!("\n{:<44}", format!("{pods} pods from a real API server"))];
    for (name, _) in racers {
        out[0] += &format!("{name:>12}");
    }
    let mut goals = Vec::new();
    for (name, value, goal) in ROWS {
        let values: Vec<f64> = racers.iter().map(|(_, laps)| value(laps)).collect();
        let mut line = format!("{name:<44}");
        for value in &values {
            line += &format!("{value:>12.2}");
        }
        if let [reference, ours] = values[..]
            && ours > 0.0
        {
            let ratio = reference / ours;
            line += &format!("{:>10}", format!("{ratio:.2}x"));
            goals.extend(goal.map(|goal| {
                let verdict = if ratio >= goal { "goal met" } else { "goal missed" };
                format!("{verdict}: {name}: {ratio:.2}x, wanted at least {goal}x")
            }));
        }
        out.push(line);
    }
    out.push(String::new());
    out.extend(goals);
    out
}

/// The median of several runs, figure by figure.
pub(super) fn median(runs: &[Laps]) -> Laps {
    let middle = |value: fn(&Laps) -> f64| super::report::middle(runs, value);
    Laps {
        pods: middle(|l| l.pods),
        create_seconds: middle(|l| l.create_seconds),
        half_ready_seconds: middle(|l| l.half_ready_seconds),
        ready_seconds: middle(|l| l.ready_seconds),
        cpu: middle(|l| l.cpu),
        requests_to_ready: middle(|l| l.requests_to_ready),
        requests: middle(|l| l.requests),
        event_requests: middle(|l| l.event_requests),
        pod_requests: middle(|l| l.pod_requests),
    }
}

impl Laps {
    /// As JSON.
    pub(super) fn json(&self) -> Value {
        json!({
            "pods": self.pods,
            "create_seconds": self.create_seconds,
            "half_ready_seconds": self.half_ready_seconds,
            "ready_seconds": self.ready_seconds,
            "cpu_seconds": self.cpu,
            "api_requests_to_ready": self.requests_to_ready,
            "api_requests": self.requests,
            "api_requests_pods": self.pod_requests,
            "api_requests_events": self.event_requests,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_ready_pod_counts() {
        let event = |status: &str| {
            format!(
                r#"{{"type":"MODIFIED","object":{{"metadata":{{"name":"a"}},"status":{{"conditions":[
                {{"type":"Ready","status":"{status}"}}]}}}}}}"#
            )
        };
        assert_eq!(became_ready(&event("True")), Some("a".to_owned()));
        assert_eq!(became_ready(&event("False")), None);
        assert_eq!(became_ready("no JSON"), None);
    }

    #[test]
    fn goals_compare_time_and_requests() {
        let slow = Laps { ready_seconds: 20.0, requests_to_ready: 1000.0, ..Laps::default() };
        let fast = Laps { ready_seconds: 2.0, requests_to_ready: 600.0, ..Laps::default() };
        let text = lines(&[("kubelet", slow), ("ticklet", fast)], 300).join("\n");
        assert!(text.contains("goal met: all ready in the API, s: 10.00x"), "{text}");
        assert!(text.contains("goal missed: API requests until all are ready: 1.67x"), "{text}");
    }

    #[test]
    fn requests_are_counted_by_verb_and_resource() {
        let dir = std::env::temp_dir().join(format!("ticklet-audit-{}", std::process::id()));
        let line =
            |verb: &str| format!(r#"{{"verb":"{verb}","objectRef":{{"resource":"pods","subresource":"status"}}}}"#);
        fs::write(&dir, format!("{}\n{}\n{{\"verb\":", line("patch"), line("patch"))).unwrap();
        let counts = requests(&dir).unwrap();
        fs::remove_file(&dir).unwrap();
        assert_eq!(counts, BTreeMap::from([(("patch".to_owned(), "pods/status".to_owned()), 2.0)]));
    }
}
