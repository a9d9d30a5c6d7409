//! Memory that the allocator keeps after a burst goes back to the system.

/// Gives free memory back; takes a few milliseconds, so it is for moments when nothing else is to be done.
#[cfg(target_env = "gnu")]
pub fn give_back() {
    #[expect(unsafe_code, reason = "a call of the C library without arguments that could be wrong")]
    // SAFETY: it takes the allocator's own locks and touches only memory that is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Other C libraries give memory back by themselves.
#[cfg(not(target_env = "gnu"))]
pub const fn give_back() {}
