//! Cgroup trees made of plain files.

use super::*;
use components::time::Mono;
use std::fs;

const NOW: Now = Now { mono: Mono(5), wall: Wall(7) };

fn put(dir: &Path, files: &[(&str, &str)]) {
    fs::create_dir_all(dir).unwrap();
    for (name, text) in files {
        fs::write(dir.join(name), text).unwrap();
    }
}

#[test]
fn a_v1_cgroup_is_read_from_its_controllers() {
    let top = tempfile::tempdir().unwrap();
    let mount = |name: &str| Some(top.path().join(name));
    let mounts = V1 {
        cpu: mount("cpu"),
        cpuacct: mount("cpuacct"),
        memory: mount("memory"),
        pids: mount("pids"),
        blkio: mount("blkio"),
    };
    let dir = |name: &str| top.path().join(name).join("kubepods/podu");
    put(
        &dir("cpuacct"),
        &[("cpuacct.usage", "117253531\n"), ("cpuacct.stat", "user 3\nsystem 4\n"), ("cgroup.procs", "12\n13\n")],
    );
    put(
        &dir("cpu"),
        &[
            ("cpu.shares", "102\n"),
            ("cpu.cfs_quota_us", "-1\n"),
            ("cpu.cfs_period_us", "100000\n"),
            ("cpu.stat", "nr_periods 9\nnr_throttled 2\nthrottled_time 300\n"),
        ],
    );
    put(
        &dir("memory"),
        &[
            ("memory.usage_in_bytes", "1000\n"),
            ("memory.limit_in_bytes", "9223372036854771712\n"),
            (
                "memory.stat",
                "rss 1\ncache 7\npgfault 3\npgmajfault 1\ntotal_rss 600\ntotal_inactive_file 250\ntotal_pgfault 30\n",
            ),
            ("memory.failcnt", "4\n"),
            ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        ],
    );
    put(&dir("pids"), &[("pids.current", "3\n"), ("pids.max", "max\n")]);
    put(
        &dir("blkio"),
        &[
            ("blkio.throttle.io_service_bytes", "254:0 Read 10\n254:0 Write 20\nTotal 30\n"),
            ("blkio.throttle.io_serviced", "254:0 Read 1\n254:0 Write 2\n"),
        ],
    );
    let hierarchies = Hierarchies::V1(mounts);
    let found = hierarchies.read("/kubepods/podu", Depth::Detail, NOW).unwrap();
    let (cpu, memory) = (found.cpu.unwrap(), found.memory.unwrap());
    assert_eq!(
        (cpu.usage, cpu.user, cpu.system, cpu.shares, cpu.quota),
        (117_253_531, 30_000_000, 40_000_000, Some(102), None)
    );
    assert_eq!(cpu.throttling, Some((9, 2, 300)));
    assert_eq!((memory.usage, memory.working_set(), memory.rss, memory.limit), (1000, 750, 600, None));
    assert_eq!((memory.faults, memory.all_faults.0, memory.limit_hits, memory.oom_kills), ((3, 1), 30, 4, 2));
    assert_eq!((found.tasks, found.processes, found.pressure), (Some((3, None)), vec![12, 13], None));
    let device = DeviceIoExpect { device: "254:0", bytes: (10, 20), operations: (1, 2) };
    assert_eq!(found.io.len(), 1);
    assert_eq!(
        (found.io[0].device.as_str(), found.io[0].bytes, found.io[0].operations),
        (device.device, device.bytes, device.operations)
    );
    assert_eq!(hierarchies.read("/kubepods/none", Depth::Usage, NOW), None);
    assert_eq!(hierarchies.children("/kubepods"), ["podu"]);
    assert!(hierarchies.read("/kubepods/podu", Depth::Usage, NOW).unwrap().processes.is_empty());
}

struct DeviceIoExpect {
    device: &'static str,
    bytes: (u64, u64),
    operations: (u64, u64),
}

#[test]
fn a_v2_cgroup_is_read_from_one_folder() {
    let top = tempfile::tempdir().unwrap();
    let some = "some avg10=1.00 avg60=0.00 avg300=0.00 total=11\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n";
    put(
        &top.path().join("kubepods.slice/x.scope"),
        &[
            (
                "cpu.stat",
                "usage_usec 2000\nuser_usec 1500\nsystem_usec 500\nnr_periods 1\nnr_throttled 1\nthrottled_usec 2\n",
            ),
            ("cpu.weight", "100\n"),
            ("cpu.max", "50000 100000\n"),
            ("memory.current", "4096\n"),
            ("memory.max", "83886080\n"),
            ("memory.swap.current", "64\n"),
            ("memory.swap.max", "0\n"),
            ("memory.stat", "anon 2048\nfile 1024\ninactive_file 96\npgfault 8\npgmajfault 1\npgscan 3\npgsteal 2\n"),
            ("memory.events", "low 0\nhigh 1\nmax 2\noom 1\noom_kill 1\n"),
            ("memory.peak", "5000\n"),
            ("cpu.pressure", some),
            ("memory.pressure", some),
            ("io.pressure", some),
            ("io.stat", "254:0 rbytes=5 wbytes=6 rios=1 wios=2 dbytes=0 dios=0\n"),
            ("cgroup.procs", "77\n"),
            ("pids.current", "1\n"),
            ("pids.max", "512\n"),
        ],
    );
    let found = Hierarchies::V2(top.path().to_owned()).read("/kubepods.slice/x.scope", Depth::Detail, NOW).unwrap();
    let (cpu, memory, pressure) = (found.cpu.unwrap(), found.memory.unwrap(), found.pressure.unwrap());
    assert_eq!((cpu.usage, cpu.user, cpu.quota, cpu.period), (2_000_000, 1_500_000, Some(50_000), Some(100_000)));
    assert_eq!(cpu.shares, Some(2597));
    assert_eq!((memory.usage, memory.working_set(), memory.rss, memory.limit), (4096, 4000, 2048, Some(83_886_080)));
    assert_eq!((memory.swap, memory.swap_limit, memory.highest, memory.events), (64, Some(0), 5000, (1, 2)));
    assert_eq!((pressure.cpu.some.total, pressure.io.full.total), (11, 5));
    assert_eq!((found.tasks, found.processes), (Some((1, Some(512))), vec![77]));
    assert_eq!((found.io[0].bytes, found.io[0].operations), ((5, 6), (1, 2)));
}

#[test]
fn hierarchies_are_found_in_the_mount_table() {
    let line = |kind: &str, point: &str, options: &str| MountLine {
        root: "/".to_owned(),
        point: point.into(),
        kind: kind.to_owned(),
        options: options.to_owned(),
    };
    let v2 = line("cgroup2", "/sys/fs/cgroup", "rw");
    assert_eq!(Hierarchies::find(std::slice::from_ref(&v2)), Some(Hierarchies::V2("/sys/fs/cgroup".into())));
    let both = [
        line("cgroup", "/sys/fs/cgroup/cpu,cpuacct", "rw,cpu,cpuacct"),
        line("cgroup", "/sys/fs/cgroup/memory", "rw,memory"),
        line("cgroup2", "/sys/fs/cgroup/unified", "rw"),
    ];
    let Some(Hierarchies::V1(found)) = Hierarchies::find(&both) else { panic!("not v1") };
    assert_eq!((found.cpu.clone(), found.memory), (found.cpuacct.clone(), Some("/sys/fs/cgroup/memory".into())));
    assert_eq!((found.cpu, found.pids), (Some("/sys/fs/cgroup/cpu,cpuacct".into()), None));
    assert_eq!(Hierarchies::find(&[]), None);
}
