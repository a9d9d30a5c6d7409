//! The lab's cgroup: one folder of its own in every mounted hierarchy, version 1 or 2.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process;

/// Makes the cgroup in every hierarchy, usable at once.
pub(super) fn create(name: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let dir = hierarchy.join(name);
        match fs::create_dir(&dir) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // A hierarchy without controllers may refuse; runc does without it.
            Err(_) if !has_controllers(&hierarchy) => continue,
            Err(error) => {
                return Err(error).with_context(|| format!("cannot make {}", dir.display()));
            }
        }
        // Version 1 starts a cpuset empty, and nothing can run in an empty one.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let parent = hierarchy.join(file);
            if parent.exists() && !hierarchy.join("cgroup.controllers").exists() {
                fs::write(dir.join(file), fs::read(&parent)?)
                    .with_context(|| format!("cannot set {file} of {}", dir.display()))?;
            }
        }
        weigh(&dir)?;
        delegate(&hierarchy, &dir)?;
    }
    Ok(())
}

/// The cgroup as a whole competes with each process outside of it: with the usual weight, twenty compilers beside the
/// tests would leave a starting container a twentieth of a core.
fn weigh(dir: &Path) -> Result<()> {
    for (file, most) in [("cpu.shares", "65536"), ("cpu.weight", "10000")] {
        if dir.join(file).exists() {
            fs::write(dir.join(file), most).with_context(|| format!("cannot set {file} of {}", dir.display()))?;
        }
    }
    Ok(())
}

/// Version 2 hands controllers down level by level.
fn delegate(hierarchy: &Path, dir: &Path) -> Result<()> {
    let Ok(controllers) = fs::read_to_string(hierarchy.join("cgroup.controllers")) else {
        return Ok(());
    };
    let enabled = fs::read_to_string(hierarchy.join("cgroup.subtree_control"))?;
    let wanted: Vec<String> =
        controllers.split_whitespace().filter(|name| enabled.contains(name)).map(|name| format!("+{name}")).collect();
    if !wanted.is_empty() {
        fs::write(dir.join("cgroup.subtree_control"), wanted.join(" "))?;
    }
    Ok(())
}

fn has_controllers(hierarchy: &Path) -> bool {
    fs::read_to_string(hierarchy.join("cgroup.controllers")).map_or(true, |text| !text.trim().is_empty())
}

/// The folders of this cgroup that exist.
pub(super) fn existing(name: &str) -> Result<Vec<PathBuf>> {
    let dirs = hierarchies()?.into_iter().map(|hierarchy| hierarchy.join(name));
    Ok(dirs.filter(|dir| dir.exists()).collect())
}

/// Kills what runs in the cgroup and removes it with all cgroups below.
pub(super) fn remove(name: &str) -> Result<()> {
    for dir in existing(name)? {
        let mut attempts = 0;
        // Killed processes leave their cgroup a moment later, and a fork may slip in between.
        while let Err(error) = remove_tree(&dir) {
            attempts += 1;
            if attempts > 100 {
                return Err(error).with_context(|| format!("cannot remove cgroup {}", dir.display()));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

fn remove_tree(dir: &Path) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    for pid in fs::read_to_string(dir.join("cgroup.procs"))?.lines() {
        process::kill_pid(pid.parse()?)?;
    }
    fs::remove_dir(dir)?;
    Ok(())
}

/// The roots of all mounted hierarchies.
fn hierarchies() -> Result<Vec<PathBuf>> {
    let mounts = fs::read_to_string("/proc/self/mounts").context("cannot read the mount table")?;
    let roots = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ');
        let (_, at, kind) = (words.next()?, words.next()?, words.next()?);
        matches!(kind, "cgroup" | "cgroup2").then(|| PathBuf::from(at))
    });
    Ok(roots.collect())
}
