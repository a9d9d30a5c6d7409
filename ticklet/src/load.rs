//! Loads the configuration: command line, `--config` file, `--config-dir` drop-ins, in the kubelet's order.
//!
//! From low to high: built-in defaults, the main file, drop-ins by name, flags. Reads files, bounded in size and
//! number; decides nothing but what the settings are. A start either has them all or ends with every problem listed.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

use components::config::{
    Document, Findings, KubeletConfiguration, MAX_FILE_BYTES, Origins, Problem, assemble, gates, resolve_path,
    tree::Origin,
};

use crate::flags::{self, CommandLine, KubeletFlags, Request};

/// Only these files of a drop-in directory are read.
const DROP_IN_SUFFIX: &str = ".conf";
/// More drop-ins than anyone writes; a directory tree of this size is a mistake.
const MAX_DROP_INS: usize = 1000;
/// Directories below each other that are searched for drop-ins.
const MAX_DROP_IN_DEPTH: usize = 16;

/// Problems or warnings that are shown.
const MAX_LINES: usize = 100;

/// How configuration files are reached.
pub(crate) trait ConfigFiles {
    /// The whole content of a regular file, or an error; never more than `limit` bytes and one.
    fn read(&self, path: &str, limit: usize) -> io::Result<Vec<u8>>;
    /// The names in a directory and whether each is a directory itself.
    fn list(&self, path: &str) -> io::Result<Vec<(String, bool)>>;
    /// The absolute directory that relative paths start from.
    fn current_dir(&self) -> io::Result<String>;
}

/// The files of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HostFiles;

impl ConfigFiles for HostFiles {
    fn read(&self, path: &str, limit: usize) -> io::Result<Vec<u8>> {
        // A pipe or device could keep the start waiting for ever.
        if !fs::metadata(path)?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut bytes = Vec::new();
        File::open(path)?.take(limit as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn list(&self, path: &str) -> io::Result<Vec<(String, bool)>> {
        let read = |entry: io::Result<fs::DirEntry>| {
            let entry = entry?;
            Ok((entry.file_name().to_string_lossy().into_owned(), entry.file_type()?.is_dir()))
        };
        fs::read_dir(path)?.map(read).collect()
    }

    fn current_dir(&self) -> io::Result<String> {
        std::env::current_dir().map(|dir| dir.to_string_lossy().into_owned())
    }
}

/// How the program starts.
#[derive(Debug)]
pub(crate) enum Start {
    /// Print this and end well.
    Print(String),
    /// Run with this configuration.
    Run(Box<Loaded>),
}

/// A complete and valid configuration.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The effective configuration.
    pub(crate) config: KubeletConfiguration,
    /// The flags that have no field in it.
    pub(crate) flags: KubeletFlags,
    /// What was ignored or will not last, one line each.
    pub(crate) warnings: Vec<String>,
}

/// Everything that keeps the configuration from being used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadError {
    /// The problems, in the order in which they were found.
    pub(crate) problems: Vec<Problem>,
}

impl fmt::Display for LoadError {
    /// One line for each problem: `FILE:LINE: field: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.problems.iter().map(ToString::to_string).collect();
        f.write_str(&bounded(lines).join("\n"))
    }
}

impl std::error::Error for LoadError {}

/// Keeps the first lines and says how many there were besides: a file of the wrong kind can fill a log.
fn bounded(mut lines: Vec<String>) -> Vec<String> {
    let more = lines.len().saturating_sub(MAX_LINES);
    lines.truncate(MAX_LINES);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// Turns the arguments, without the name of the program, into a configuration.
pub(crate) fn load(args: &[String], files: &dyn ConfigFiles) -> Result<Start, LoadError> {
    let line = match flags::parse(args) {
        Ok(Request::Print(text)) => return Ok(Start::Print(text)),
        Ok(Request::Run(line)) => line,
        Err(problems) => return Err(LoadError { problems }),
    };
    let mut found = Findings::default();
    let (config, origins) = read_files(&line, files, &mut found);
    let place = |path: &str| origins.find(path).cloned().unwrap_or_else(|| Origin::whole("configuration"));
    for error in config.validate() {
        found.errors.push(Problem { at: place(&error.path), field: error.path, message: error.message });
    }
    if !found.errors.is_empty() {
        return Err(LoadError { problems: found.errors });
    }
    let mut warnings = line.warnings.clone();
    warnings.extend(found.warnings.iter().map(ToString::to_string));
    for (gate, message) in gates::short_lived(&config.feature_gates) {
        let field = format!("featureGates.{gate}");
        warnings.push(Problem { at: place(&field), field, message }.to_string());
    }
    for advice in config.advice() {
        let problem = Problem { at: place(&advice.path), field: advice.path, message: advice.message };
        warnings.push(problem.to_string());
    }
    for address in line.flags.node_ips().1 {
        warnings.push(format!("--node-ip: {address:?} is not an IP address, ignored"));
    }
    let idle = line.flags.not_acted_on();
    if !idle.is_empty() {
        warnings.push(format!("flags accepted but not acted on by this version: {}", idle.join(", ")));
    }
    let warnings = bounded(warnings);
    Ok(Start::Run(Box::new(Loaded { config, flags: line.flags, warnings })))
}

/// Reads and merges the files, then lays the flags over them.
fn read_files(line: &CommandLine, files: &dyn ConfigFiles, found: &mut Findings) -> (KubeletConfiguration, Origins) {
    let (main, dir) = (&line.flags.config, &line.flags.config_dir);
    let main = (!main.is_empty()).then(|| read_document(main, files, found)).flatten();
    let drop_ins = if dir.is_empty() { Vec::new() } else { read_drop_ins(dir, files, found) };
    let mut assembled = assemble(line.alone(), main.as_ref(), &drop_ins);
    found.errors.append(&mut assembled.findings.errors);
    found.warnings.append(&mut assembled.findings.warnings);
    line.apply(&mut assembled.config, &mut assembled.origins);
    (assembled.config, assembled.origins)
}

fn read_document(path: &str, files: &dyn ConfigFiles, found: &mut Findings) -> Option<Document> {
    let parent = Path::new(path).parent().map(|dir| dir.to_string_lossy().into_owned()).unwrap_or_default();
    let read = || {
        let dir = if path.starts_with('/') { parent } else { resolve_path(&files.current_dir()?, &parent) };
        Ok(Document { file: path.to_owned(), dir, bytes: files.read(path, MAX_FILE_BYTES)? })
    };
    read().map_err(|error: io::Error| found.errors.push(unreadable(path, &error))).ok()
}

fn unreadable(path: &str, error: &io::Error) -> Problem {
    // The operating system's number adds nothing to its text.
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    Problem { at: Origin::whole(path), field: String::new(), message: format!("cannot be read: {text}") }
}

/// Reads the drop-ins of a directory and those below it, in the order of their names.
fn read_drop_ins(dir: &str, files: &dyn ConfigFiles, found: &mut Findings) -> Vec<Document> {
    let mut paths = Vec::new();
    collect_drop_ins(dir, MAX_DROP_IN_DEPTH, files, &mut paths, found);
    if paths.len() > MAX_DROP_INS {
        let message = format!("holds more than {MAX_DROP_INS} files that end in {DROP_IN_SUFFIX}");
        found.errors.push(Problem { at: Origin::whole(dir), field: String::new(), message });
        return Vec::new();
    }
    paths.iter().filter_map(|path| read_document(path, files, found)).collect()
}

fn collect_drop_ins(dir: &str, depth: usize, files: &dyn ConfigFiles, paths: &mut Vec<String>, found: &mut Findings) {
    let mut entries = match files.list(dir) {
        Ok(entries) => entries,
        Err(error) => {
            found.errors.push(unreadable(dir, &error));
            return;
        }
    };
    entries.sort();
    for (name, is_dir) in entries {
        let path = format!("{}/{name}", dir.trim_end_matches('/'));
        match (is_dir, depth) {
            (true, 0) => {
                let message = format!("more than {MAX_DROP_IN_DEPTH} directories below each other");
                found.errors.push(Problem { at: Origin::whole(&path), field: String::new(), message });
            }
            (true, _) => collect_drop_ins(&path, depth - 1, files, paths, found),
            (false, _) if name.ends_with(DROP_IN_SUFFIX) && paths.len() <= MAX_DROP_INS => paths.push(path),
            (false, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const HEAD: &str = "kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n";

    /// Files by absolute path.
    #[derive(Default)]
    struct FakeFiles(BTreeMap<String, Vec<u8>>);

    impl FakeFiles {
        fn with(mut self, path: &str, settings: &str) -> Self {
            self.0.insert(path.to_owned(), format!("{HEAD}{settings}").into_bytes());
            self
        }

        fn raw(mut self, path: &str, bytes: &[u8]) -> Self {
            self.0.insert(path.to_owned(), bytes.to_vec());
            self
        }
    }

    impl ConfigFiles for FakeFiles {
        fn read(&self, path: &str, limit: usize) -> io::Result<Vec<u8>> {
            let found = self.0.get(&resolve_path("/data", path)).ok_or(io::ErrorKind::NotFound)?;
            Ok(found[..found.len().min(limit + 1)].to_vec())
        }

        fn list(&self, path: &str) -> io::Result<Vec<(String, bool)>> {
            let prefix = format!("{}/", resolve_path("/data", path));
            let below = self.0.keys().filter_map(|file| file.strip_prefix(&prefix));
            let mut names: Vec<_> = below
                .map(|rest| rest.split_once('/').map_or((rest.to_owned(), false), |(dir, _)| (dir.to_owned(), true)))
                .collect();
            names.dedup();
            // A directory is listed in no order; what is loaded must not depend on it.
            names.reverse();
            if names.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(names) }
        }

        fn current_dir(&self) -> io::Result<String> {
            Ok("/data".to_owned())
        }
    }

    fn start(args: &str, files: &dyn ConfigFiles) -> Result<Start, LoadError> {
        load(&args.split_whitespace().map(str::to_owned).collect::<Vec<_>>(), files)
    }

    #[track_caller]
    fn run(args: &str, files: &dyn ConfigFiles) -> Loaded {
        match start(args, files) {
            Ok(Start::Run(loaded)) => *loaded,
            other => panic!("{args}: {other:?}"),
        }
    }

    #[track_caller]
    fn refuse(args: &str, files: &dyn ConfigFiles, expect: &[&str]) {
        let error = start(args, files).unwrap_err();
        assert_eq!(error.to_string().lines().collect::<Vec<_>>(), expect, "{args}");
    }

    #[test]
    fn flags_alone_start_from_the_older_defaults() {
        let loaded = run("--max-pods=5", &FakeFiles::default());
        assert_eq!((loaded.config.max_pods, loaded.config.read_only_port), (5, 10255));
        assert_eq!(loaded.config.authorization.mode, "AlwaysAllow");
        assert!(loaded.config.eviction_hard.is_empty());
    }

    #[test]
    fn precedence() {
        let files = FakeFiles::default()
            .with("/etc/k/main.yaml", "maxPods: 1\nport: 1\nregistryBurst: 1\neventBurst: 1\nstaticPodPath: m\n")
            .with("/etc/k/d/20-b.conf", "maxPods: 3\nregistryBurst: 3\n")
            .with("/etc/k/d/10-a.conf", "maxPods: 2\nregistryBurst: 2\neventBurst: 2\n")
            .with("/etc/k/d/15/x.conf", "eventBurst: 15\n")
            .with("/etc/k/d/30-c.yaml", "maxPods: 99\n");
        let loaded = run("--max-pods=4 --config=/etc/k/main.yaml --config-dir=/etc/k/d/", &files);
        let c = &loaded.config;
        assert_eq!((c.max_pods, c.registry_burst, c.event_burst, c.port), (4, 3, 15, 1));
        assert_eq!(c.static_pod_path, "/etc/k/m");
        assert_eq!(c.read_only_port, 0, "with a file the defaults are those of files");
        assert_eq!(c.eviction_hard.len(), 5);
        let loaded = run("--max-pods=4 --port=9 --config-dir=/etc/k/d", &files);
        assert_eq!((loaded.config.max_pods, loaded.config.port, loaded.config.registry_burst), (4, 9, 3));
    }

    #[test]
    fn maps_given_by_flag_replace_those_of_the_file_but_gates_are_merged() {
        let settings = "evictionHard: {pid.available: 5%}\nfeatureGates: {EventedPLEG: true, MemoryQoS: true}\n";
        let files = FakeFiles::default().with("/c", settings);
        let loaded = run("--config=/c --eviction-hard=memory.available<1Gi --feature-gates=MemoryQoS=false", &files);
        assert_eq!(loaded.config.eviction_hard.keys().collect::<Vec<_>>(), ["memory.available"]);
        assert_eq!(
            loaded.config.feature_gates,
            [("EventedPLEG".to_owned(), true), ("MemoryQoS".to_owned(), false)].into()
        );
    }

    #[test]
    fn relative_files_are_found_and_their_paths_resolved() {
        let files = FakeFiles::default().with("/data/conf/main.yaml", "staticPodPath: ../m\n");
        assert_eq!(run("--config conf/main.yaml", &files).config.static_pod_path, "/data/m");
    }

    #[test]
    fn warnings_are_kept() {
        let files = FakeFiles::default().with("/c", "maxpods: 3\nfeatureGates: {NodeSwap: true}\n");
        let loaded = run("--config=/c --node-ip=x --pod-infra-container-image=p --lock-file=/l", &files);
        assert_eq!(
            loaded.warnings,
            [
                "flags of older kubelets, ignored: --pod-infra-container-image",
                "/c:3: maxpods: unknown field, ignored",
                "/c:4: featureGates.NodeSwap: feature is settled: its gate will be removed in a later release",
                "--node-ip: \"x\" is not an IP address, ignored",
                "flags accepted but not acted on by this version: --lock-file",
            ]
        );
    }

    #[test]
    fn every_problem_of_every_file_is_listed() {
        let files = FakeFiles::default()
            .with("/c", "maxPods: x\nimageGCLowThresholdPercent: 90\n")
            .with("/d/1.conf", "oomScoreAdj: 2000\n")
            .raw("/d/2.conf", b"maxPods: 3\n")
            .raw("/d/3.conf", b"\0\0\0")
            .raw("/d/4.conf", b"")
            .raw("/d/5.conf", b"kind: KubeletConfiguration\napiVersion: \"kube");
        refuse(
            "--config=/c --config-dir=/d --healthz-port=-7",
            &files,
            &[
                "/c:3: maxPods: want a whole number, got the string \"x\"",
                "/d/2.conf:1: kind: missing, want KubeletConfiguration",
                "/d/2.conf:1: apiVersion: missing, want kubelet.config.k8s.io/v1beta1",
                "/d/3.conf:1: not a text file: it contains a zero byte",
                "/d/4.conf: the file is empty: want a KubeletConfiguration",
                "/d/5.conf:2: not valid YAML or JSON: unclosed quote",
                "--healthz-port: healthzPort: -7 is out of range, want 0 to 65535",
                "/d/1.conf:3: oomScoreAdj: 2000 is out of range, want -1000 to 1000",
                "/c:4: imageGCLowThresholdPercent: 90 must be less than imageGCHighThresholdPercent, 85",
            ],
        );
    }

    #[test]
    fn a_flood_of_problems_is_cut() {
        let wrong = |i| format!("f{i}: 1\n");
        let files = FakeFiles::default()
            .with("/unknown", &(0..500).map(wrong).collect::<String>())
            .with("/wrong", &format!("clusterDNS: [{}]\n", vec!["1"; 500].join(", ")));
        let warnings = run("--config=/unknown", &files).warnings;
        assert_eq!((warnings.len(), warnings[100].as_str()), (101, "and 400 more"));
        let error = start("--config=/wrong", &files).unwrap_err().to_string();
        assert!(error.lines().count() == 101 && error.ends_with("\nand 400 more"));
    }

    #[test]
    fn files_that_are_not_there() {
        refuse("--config=/none", &FakeFiles::default(), &["/none: cannot be read: entity not found"]);
        refuse("--config-dir=/none", &FakeFiles::default(), &["/none: cannot be read: entity not found"]);
        refuse("--nope", &FakeFiles::default(), &["--nope: unknown flag, see --help"]);
    }

    #[test]
    fn header_values_never_reach_a_message() {
        let files = FakeFiles::default().with("/c", "staticPodURLHeader: {Authorization: s3cret}\n");
        let error = start("--config=/c --manifest-url-header=Authorization", &files).unwrap_err();
        assert!(!error.to_string().contains("s3cret"), "{error}");
        let error = start("--config=/c", &files).unwrap_err();
        assert!(!error.to_string().contains("s3cret"), "{error}");
    }

    #[test]
    fn real_files_are_read_within_bounds() {
        let dir = std::env::temp_dir().join(format!("ticklet-load-{}", std::process::id()));
        fs::create_dir_all(dir.join("sub")).unwrap();
        let path = |name: &str| dir.join(name).to_string_lossy().into_owned();
        fs::write(dir.join("big"), vec![b'#'; MAX_FILE_BYTES + 10]).unwrap();
        fs::write(dir.join("ok"), format!("{HEAD}maxPods: 3\n")).unwrap();
        fs::write(dir.join("sub/a.conf"), format!("{HEAD}maxPods: 4\n")).unwrap();
        let loaded = run(&format!("--config={} --config-dir={}", path("ok"), path("")), &HostFiles);
        let big = start(&format!("--config={}", path("big")), &HostFiles).unwrap_err().to_string();
        let a_dir = start(&format!("--config={}", path("sub")), &HostFiles).unwrap_err().to_string();
        let device = start("--config=/dev/zero", &HostFiles).unwrap_err().to_string();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(loaded.config.max_pods, 4);
        assert!(big.ends_with("the file is larger than 4 MiB"), "{big}");
        assert!(a_dir.ends_with("cannot be read: not a regular file"), "{a_dir}");
        assert_eq!(device, "/dev/zero: cannot be read: not a regular file");
    }
}
