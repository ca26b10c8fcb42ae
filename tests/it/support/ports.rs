//! Free TCP ports for servers that cannot choose a port.
//!
//! The ports are below the range that the system uses for outgoing connections. So between the check here and the bind
//! of the server only another test process can take a port. The code that starts a server then tries another port.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 10_000;
const COUNT: u32 = 20_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port on which no server listens, on any address. No port is returned twice in a process.
pub fn free() -> u16 {
    // Concurrent processes start with different ports: consecutive process ids are 97 ports apart.
    let start = std::process::id().wrapping_mul(97);
    (0..COUNT)
        .map(|_| start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT + FIRST)
        .filter_map(|port| u16::try_from(port).ok())
        .find(|port| TcpListener::bind(("0.0.0.0", *port)).is_ok())
        .expect("one port of twenty thousand is free")
}

#[test]
fn no_port_is_returned_twice() {
    let mut ports: Vec<u16> = (0..50).map(|_| free()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 50);
}
