//! Tests of binding parts of volumes, with the links an attacker would put there.

use super::super::Cancel;
use super::*;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A volume and a place for targets, whose mounts go with it.
struct Rig {
    top: tempfile::TempDir,
}

impl Drop for Rig {
    fn drop(&mut self) {
        // Else the folder cannot be removed.
        let _ = mounts::unmount_below(self.top.path(), &Cancel::default());
    }
}

impl Rig {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("volume")).unwrap();
        fs::create_dir(top.path().join("secret")).unwrap();
        fs::write(top.path().join("secret/key"), "hush").unwrap();
        Self { top }
    }

    fn volume(&self) -> PathBuf {
        self.top.path().join("volume")
    }

    fn target(&self, index: usize) -> PathBuf {
        self.top.path().join("pod/volume-subpaths/v/c").join(index.to_string())
    }

    fn bind(&self, path: &str, index: usize) -> Result<PathBuf, HostError> {
        let target = self.target(index);
        bind(&SubPath {
            volume: Arc::from("v"),
            container: Arc::from("c"),
            root: self.volume().display().to_string(),
            path: path.to_owned(),
            target: target.display().to_string(),
        })
        .map(|()| target)
    }

    #[track_caller]
    fn refuses(&self, path: &str) {
        let error = self.bind(path, 9).unwrap_err();
        assert_eq!(error.message, "failed to prepare subPath for volumeMount \"v\" of container \"c\"");
        assert!(!self.target(9).exists());
    }
}

#[test]
fn files_and_directories_are_bound_and_missing_ones_made_with_the_volumes_mode() {
    let rig = Rig::new();
    fs::set_permissions(rig.volume(), fs::Permissions::from_mode(0o2777)).unwrap();
    fs::write(rig.volume().join("file"), "content").unwrap();
    assert_eq!(fs::read_to_string(rig.bind("file", 0).unwrap()).unwrap(), "content");
    let made = rig.bind("new/deep", 1).unwrap();
    fs::write(made.join("x"), "y").unwrap();
    assert_eq!(fs::read_to_string(rig.volume().join("new/deep/x")).unwrap(), "y");
    for dir in ["new", "new/deep"] {
        assert_eq!(fs::metadata(rig.volume().join(dir)).unwrap().mode() & 0o7777, 0o2777, "{dir}");
    }
    assert_eq!(fs::metadata(rig.target(1).parent().unwrap()).unwrap().mode() & 0o7777, 0o750);
}

#[test]
fn it_is_bound_once_and_anew_when_the_file_is_another() {
    let rig = Rig::new();
    let file = rig.volume().join("k");
    fs::write(&file, "one").unwrap();
    let target = rig.bind("k", 0).unwrap();
    rig.bind("k", 0).unwrap();
    let count = || mounts::read().unwrap().iter().filter(|mount| mount.point == target.canonicalize().unwrap()).count();
    assert_eq!(count(), 1);
    // As a projected volume changes: another file under the same name.
    fs::write(rig.volume().join("next"), "two").unwrap();
    fs::rename(rig.volume().join("next"), &file).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "one", "the running container keeps what it has");
    rig.bind("k", 0).unwrap();
    assert_eq!((fs::read_to_string(&target).unwrap(), count()), ("two".to_owned(), 1));
    // A file that became a directory.
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(rig.bind("k", 0).unwrap().is_dir());
}

#[test]
fn links_within_the_volume_are_followed_and_no_link_leads_out() {
    let rig = Rig::new();
    let volume = rig.volume();
    fs::create_dir_all(volume.join("..2026/sub")).unwrap();
    fs::write(volume.join("..2026/k"), "v").unwrap();
    symlink("..2026", volume.join("..data")).unwrap();
    symlink("..data/k", volume.join("k")).unwrap();
    symlink(volume.join("..2026/sub"), volume.join("inside")).unwrap();
    symlink("../../volume", volume.join("..2026/round")).unwrap();
    assert_eq!(fs::read_to_string(rig.bind("k", 0).unwrap()).unwrap(), "v");
    assert!(rig.bind("inside", 1).unwrap().is_dir());
    let secret = rig.top.path().join("secret");
    symlink(&secret, volume.join("absolute")).unwrap();
    symlink("../secret", volume.join("relative")).unwrap();
    symlink("..2026/../../secret/key", volume.join("devious")).unwrap();
    symlink("/proc/self/cwd", volume.join("magic")).unwrap();
    symlink("loop", volume.join("loop")).unwrap();
    fs::write(volume.join("file"), "").unwrap();
    for path in ["absolute", "absolute/key", "relative", "relative/new", "devious", "magic", "loop", "file/below"] {
        rig.refuses(path);
    }
    rig.refuses("..2026/round");
    rig.refuses("../secret");
    assert!(!secret.join("new").exists());
}

#[test]
fn a_volume_that_is_gone_or_is_a_file_is_refused() {
    let rig = Rig::new();
    fs::remove_dir(rig.volume()).unwrap();
    rig.refuses("x");
    fs::write(rig.volume(), "").unwrap();
    rig.refuses("x");
}

/// The classic attack: a directory is swapped for a link out of the volume while it is looked up.
#[test]
fn a_race_of_links_never_shows_what_lies_outside() {
    let rig = Rig::new();
    let volume = rig.volume();
    fs::create_dir(volume.join("good")).unwrap();
    fs::write(volume.join("good/key"), "mine").unwrap();
    symlink("../secret", volume.join("bad")).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let racer = {
        let (stop, volume) = (Arc::clone(&stop), volume.clone());
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let _ = fs::rename(volume.join("good"), volume.join("x"));
                let _ = fs::rename(volume.join("bad"), volume.join("good"));
                let _ = fs::rename(volume.join("good"), volume.join("bad"));
                let _ = fs::rename(volume.join("x"), volume.join("good"));
            }
        })
    };
    let (mut bound, mut tries) = (0, 0);
    // On a busy machine the good moments are rare.
    let end = Instant::now() + Duration::from_secs(60);
    while tries < 300 || (bound == 0 && Instant::now() < end) {
        tries += 1;
        if let Ok(target) = rig.bind("good/key", 0) {
            bound += 1;
            // The directory may have been made anew while it was away; the secret must never show.
            let seen = fs::read_to_string(&target).unwrap_or_default();
            assert_ne!(seen, "hush");
        }
    }
    stop.store(true, Ordering::Relaxed);
    racer.join().unwrap();
    assert!(bound > 0, "no look-up of {tries} hit the good moment");
}
