//! What a lab leaves on the machine: finds it by the lab's number and removes it, step by step and by name.
//!
//! Works without the lab's containerd, so it also cleans up after a crash.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::mount::{MntFlags, umount2};

use super::{Number, cgroup};
use crate::process::{self, Process};

/// Programs that may belong to a lab; others that merely name its folder are left alone.
const PROGRAMS: [&str; 5] = ["containerd", "containerd-shim-runc-v2", "ticklet", "kubelet", "runc"];

/// Where the CNI library remembers what it set up.
const CNI_RESULTS: &str = "/var/lib/cni/results";

/// Where a kubelet links the logs of all containers.
const LOG_LINKS: &str = "/var/log/containers";

/// One line for each thing of the lab that exists.
pub(super) fn find(number: Number) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for process in processes(number)? {
        found.push(format!("process {} {}", process.pid, process.program()));
    }
    found.extend(mounts(&number.dir())?.into_iter().map(|mount| format!("mount {}", mount.display())));
    found.extend(cgroup::existing(&number.cgroup())?.into_iter().map(|dir| format!("cgroup {}", dir.display())));
    if bridge_exists(number) {
        found.push(format!("interface {}", number.bridge()));
    }
    found.extend(nat_rules(number)?.into_iter().map(|rule| format!("iptables {rule}")));
    found.extend(cni_results(number)?.into_iter().map(|path| format!("file {}", path.display())));
    found.extend(log_links(&number.dir())?.into_iter().map(|path| format!("link {}", path.display())));
    if number.dir().exists() {
        found.push(format!("folder {}", number.dir().display()));
    }
    Ok(found)
}

/// Removes all of it.
pub(super) fn remove(number: Number) -> Result<()> {
    kill_processes(number)?;
    cgroup::remove(&number.cgroup())?;
    for mount in mounts(&number.dir())?.iter().rev() {
        umount2(mount, MntFlags::MNT_DETACH).with_context(|| format!("cannot unmount {}", mount.display()))?;
    }
    if bridge_exists(number) {
        run("ip", &["link", "delete", &number.bridge()])?;
    }
    remove_nat_rules(number)?;
    for path in cni_results(number)?.into_iter().chain(log_links(&number.dir())?) {
        fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    remove_shim_sockets(&number.dir());
    let dir = number.dir();
    if dir.exists() {
        remove_folder(&dir).with_context(|| format!("cannot remove {}", dir.display()))?;
    }
    Ok(())
}

/// Removes a folder; one that was killed a moment ago may still write a last file into it.
fn remove_folder(dir: &Path) -> std::io::Result<()> {
    for _ in 0..20 {
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() == std::io::ErrorKind::DirectoryNotEmpty => {
                std::thread::sleep(Duration::from_millis(100));
            }
            end => return end,
        }
    }
    fs::remove_dir_all(dir)
}

/// Processes of the lab: known programs whose command line names its folder.
fn processes(number: Number) -> Result<Vec<Process>> {
    let dir = format!("{}/", number.dir().display());
    let mut all = process::all()?;
    all.retain(|process| PROGRAMS.contains(&process.program()) && process.args.iter().any(|arg| arg.contains(&dir)));
    Ok(all)
}

/// Kills agents and containerd first, so that nobody restarts anything, then shims with their containers.
fn kill_processes(number: Number) -> Result<()> {
    let ours = processes(number)?;
    let (shims, others): (Vec<Process>, Vec<Process>) =
        ours.into_iter().partition(|process| process.program().contains("shim"));
    others.iter().try_for_each(Process::kill)?;
    let parents: BTreeSet<i32> = shims.iter().map(|shim| shim.pid).collect();
    let children: Vec<Process> =
        process::all()?.into_iter().filter(|process| parents.contains(&process.parent)).collect();
    shims.iter().chain(&children).try_for_each(Process::kill)?;
    let mut attempts = 0;
    while !processes(number)?.is_empty() && attempts < 100 {
        attempts += 1;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Mount points below a folder, in the order of mounting.
fn mounts(dir: &Path) -> Result<Vec<PathBuf>> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("cannot read the mount table")?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    Ok(points.filter(|point| point.starts_with(dir)).collect())
}

fn bridge_exists(number: Number) -> bool {
    Path::new("/sys/class/net").join(number.bridge()).exists()
}

/// Rules of the port mapper that name the lab's network.
fn nat_rules(number: Number) -> Result<Vec<String>> {
    let rules = run("iptables", &["-w", "-t", "nat", "-S"])?;
    // The name stands in quotes inside the quoted comment: dnat name: "tklab1" id: "…".
    let name = format!("name: \\\"{}\\\"", number.bridge());
    Ok(rules.lines().filter(|rule| rule.contains(&name)).map(str::to_owned).collect())
}

/// Deletes these rules and the chains they jump to.
fn remove_nat_rules(number: Number) -> Result<()> {
    for rule in nat_rules(number)? {
        let args = split_quoted(&rule.replacen("-A", "-D", 1));
        let mut all = vec!["-w", "-t", "nat"];
        all.extend(args.iter().map(String::as_str));
        run("iptables", &all)?;
        let target = args.iter().position(|arg| arg == "-j").and_then(|at| args.get(at + 1));
        if let Some(chain) = target.filter(|chain| chain.starts_with("CNI-DN-") || chain.starts_with("CNI-SN-")) {
            run("iptables", &["-w", "-t", "nat", "-F", chain])?;
            run("iptables", &["-w", "-t", "nat", "-X", chain])?;
        }
    }
    Ok(())
}

/// Splits a rule as iptables prints it: words, some of them in double quotes with escapes.
fn split_quoted(rule: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    let mut chars = rule.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' if quoted => word.extend(chars.next()),
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(std::mem::take(&mut word)),
            _ => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

fn cni_results(number: Number) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(CNI_RESULTS) else {
        return Ok(Vec::new());
    };
    // Files of the loopback network do not carry the lab's name, but all name the namespace, which lies in its folder.
    let namespace = format!("\"netns\":\"{}/", number.dir().display());
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        // Another lab may remove its own at this moment.
        if fs::read_to_string(&path).is_ok_and(|text| text.contains(&namespace)) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Links to logs in a folder.
pub fn log_links(dir: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(LOG_LINKS) else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if fs::read_link(&path).is_ok_and(|target| target.starts_with(dir)) {
            found.push(path);
        }
    }
    Ok(found)
}

/// A killed shim leaves its socket in a folder that all containerds share; the bundle says which one it was.
fn remove_shim_sockets(dir: &Path) {
    let bundles = dir.join("state/io.containerd.runtime.v2.task/k8s.io");
    let Ok(entries) = fs::read_dir(bundles) else {
        return;
    };
    for entry in entries.flatten() {
        for file in ["address", "bootstrap.json"] {
            let Ok(text) = fs::read_to_string(entry.path().join(file)) else {
                continue;
            };
            for part in text.split('"').filter_map(|part| part.trim().strip_prefix("unix://")) {
                // It is gone when the shim ended in peace.
                let _ = fs::remove_file(part);
            }
        }
    }
}

fn run(program: &str, args: &[&str]) -> Result<String> {
    // Debian keeps these out of an ordinary user's PATH.
    let path = format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(program);
    command.args(args).env("PATH", path);
    process::run(&mut command, Duration::from_secs(30))?
        .success()
        .with_context(|| format!("{program} {}", args.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_split_as_iptables_quotes_them() {
        let rule = r#"-D CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"tklab1\" id: \"ab\"" -j CNI-DN-1"#;
        let words = split_quoted(rule);
        assert_eq!(words[7], r#"dnat name: "tklab1" id: "ab""#);
        assert_eq!(words.last().unwrap(), "CNI-DN-1");
    }
}
