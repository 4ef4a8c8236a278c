//! Whether the system's clock is kept in step with others (NTP), as the kernel has been told.
#![expect(unsafe_code, reason = "rustix has no adjtimex")]

use std::io;

/// True if a time service keeps the clock. The clock is read and not adjusted.
///
/// # Errors
/// The kernel's; a sandbox may forbid the call.
pub fn is_synchronised() -> io::Result<bool> {
    // SAFETY: all fields are numbers, for which zero is a value; `modes` of 0 asks for no change.
    let mut state: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes to the structure, which is of the C library's own layout, and no further.
    let said = unsafe { libc::adjtimex(&raw mut state) };
    match said {
        -1 => Err(io::Error::last_os_error()),
        libc::TIME_ERROR => Ok(false),
        _ => Ok(state.status & libc::STA_UNSYNC == 0),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernel_answers() {
        super::is_synchronised().expect("reading needs no privilege");
    }
}
