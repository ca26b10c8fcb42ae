//! Free TCP ports for servers that must be told theirs.
//!
//! Ports come from below the range that the system gives to outgoing connections, so nothing takes one between the
//! check here and the server's own bind, except another test process; who starts a server tries again then.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 10_000;
const COUNT: u32 = 20_000;

static HANDED_OUT: AtomicU32 = AtomicU32::new(0);

/// A port that nobody listens on, on any address, and that this process was not given before.
pub fn free() -> u16 {
    // Processes that run side by side start far apart: neighbouring ids land 97 ports from each other.
    let start = std::process::id().wrapping_mul(97);
    (0..COUNT)
        .map(|_| start.wrapping_add(HANDED_OUT.fetch_add(1, Ordering::Relaxed)) % COUNT + FIRST)
        .filter_map(|port| u16::try_from(port).ok())
        .find(|port| TcpListener::bind(("0.0.0.0", *port)).is_ok())
        .expect("one port of twenty thousand is free")
}

#[test]
fn no_port_is_handed_out_twice() {
    let mut ports: Vec<u16> = (0..50).map(|_| free()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 50);
}
