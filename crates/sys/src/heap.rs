//! Memory of this process.

#![cfg_attr(
    target_env = "gnu",
    expect(unsafe_code, reason = "malloc_trim has no safe wrapper")
)]

/// Gives memory that was freed back to the system, as far as the allocator can. glibc by itself keeps what a peak has left
/// below the newest allocation, for good.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes no pointer, and any thread may call it at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
