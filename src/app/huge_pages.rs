//! Transparent huge pages, which the service does without.

use std::io;

/// Makes the kernel back the memory of this process with pages of 4 KiB only. Memory that is in use stays as it is, so
/// call it first.
///
/// The allocator keeps the free memory of each thread between memory that is in use. A huge page of 2 MiB is resident
/// as a whole, also where a thread has used one block of it: the service then needs twice the memory, in steps that
/// look like a leak.
///
/// # Errors
/// When the kernel refuses, as one built without huge pages does.
pub fn refuse_huge_pages() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::thread::disable_transparent_huge_pages(true)?;
    Ok(())
}
