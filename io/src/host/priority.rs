//! Threads whose work can wait.

/// The calling thread runs only when nothing else wants to. Failure is no harm: it then runs like any other.
pub(crate) fn give_way() {
    #[expect(unsafe_code, reason = "no safe wrapper of this system call is among our dependencies")]
    // SAFETY: it takes no pointers; `who` 0 means the calling thread on Linux.
    let _ = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
}
