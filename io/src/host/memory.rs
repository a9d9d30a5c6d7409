//! Memory that was needed for a burst goes back to the system: what the allocator keeps, and pages of the program that ran
//! once, such as its start.

use std::fs;

/// Gives memory back; takes a few milliseconds, so it is for moments when nothing else is to be done.
pub fn give_back() {
    trim();
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    // Under a debugger pages of code may hold its breakpoints, which would be lost.
    if is_traced(&read("/proc/self/status")) {
        return;
    }
    let program = fs::read_link("/proc/self/exe").map(|path| path.to_string_lossy().into_owned()).unwrap_or_default();
    for range in code_of(&read("/proc/self/maps"), &program) {
        drop_pages(range);
    }
}

/// All threads take memory from one heap; called before there are others. A heap of its own for each thread grows by a
/// page at a time, each with a call of the kernel, and keeps what the thread once needed.
#[cfg(target_env = "gnu")]
pub fn share_heap() {
    #[expect(unsafe_code, reason = "a setting of the C library's allocator")]
    // SAFETY: it sets one number under the allocator's own lock; one that it does not know is ignored.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Other C libraries have one heap.
#[cfg(not(target_env = "gnu"))]
pub const fn share_heap() {}

#[cfg(target_env = "gnu")]
fn trim() {
    #[expect(unsafe_code, reason = "a call of the C library without arguments that could be wrong")]
    // SAFETY: it takes the allocator's own locks and touches only memory that is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other C libraries give memory back by themselves.
#[cfg(not(target_env = "gnu"))]
const fn trim() {}

fn is_traced(status: &str) -> bool {
    status.lines().find_map(|line| line.strip_prefix("TracerPid:")).is_none_or(|pid| pid.trim() != "0")
}

/// Address ranges that hold the program's own code: mapped from its file, executable, never written.
fn code_of(maps: &str, program: &str) -> Vec<(usize, usize)> {
    let range = |line: &str| {
        let mut words = line.split_ascii_whitespace();
        let (range, mode) = (words.next()?, words.next()?);
        if mode != "r-xp" || program.is_empty() || words.nth(3)? != program {
            return None;
        }
        let (from, to) = range.split_once('-')?;
        Some((usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?))
    };
    maps.lines().filter_map(range).collect()
}

/// Takes pages out of this process; what still runs is mapped again from the page cache when it is next reached.
fn drop_pages((from, to): (usize, usize)) {
    let start = std::ptr::with_exposed_provenance_mut::<libc::c_void>(from);
    #[expect(unsafe_code, reason = "advice about a mapping of the program's own file")]
    // SAFETY: the range is a private, executable mapping of this program's file that was never written, as the kernel just
    // said; dropped pages read the same when they come back. The code stays mapped as long as the process lives.
    unsafe {
        libc::madvise(start, to.saturating_sub(from), libc::MADV_DONTNEED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
557a6f91f000-557a6fd62000 r--p 00000000 fe:00 1234 /usr/bin/ticklet
557a6fd62000-557a70c10000 r-xp 00442000 fe:00 1234 /usr/bin/ticklet
557a70c10000-557a70c7b000 r--p 012f0000 fe:00 1234 /usr/bin/ticklet
557a70c7b000-557a70c80000 rw-p 0135a000 fe:00 1234 /usr/bin/ticklet
7f10c0000000-7f10c0157000 r-xp 00026000 fe:00 99 /usr/lib/libc.so.6
7ffd1c3f2000-7ffd1c3f4000 r-xp 00000000 00:00 0 [vdso]
";

    #[test]
    fn only_code_of_the_program_itself_is_found() {
        assert_eq!(code_of(MAPS, "/usr/bin/ticklet"), [(0x557a_6fd6_2000, 0x557a_70c1_0000)]);
        assert_eq!(code_of(MAPS, ""), []);
        assert_eq!(code_of("garbage\n1-2\nzz-yy r-xp 0 0 0 /x\n", "/x"), []);
    }

    #[test]
    fn a_traced_process_keeps_its_pages() {
        assert!(is_traced("Name:\tx\nTracerPid:\t17\n"));
        assert!(is_traced(""), "unknown");
        assert!(!is_traced("Name:\tx\nTracerPid:\t0\nUid:\t0\n"));
    }

    #[test]
    fn the_program_runs_on_with_less_memory() {
        let program = fs::read_link("/proc/self/exe").unwrap();
        let ranges = code_of(&fs::read_to_string("/proc/self/maps").unwrap(), program.to_str().unwrap());
        assert!(!ranges.is_empty());
        give_back();
        assert_eq!(format!("{:?}", [1, 2]), "[1, 2]");
    }
}
