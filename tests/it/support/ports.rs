//! Free TCP ports for servers that cannot choose a port.
//!
//! The ports are below the range that the system uses for outgoing connections. So between the check here and the bind
//! of the server only another test process can take a port. The code that starts a server then tries another port.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 10_000;
const COUNT: u32 = 20_000;
/// Parts of the ports, one for each test that cargo-nextest runs at the same time: a server that a test stops finds its
/// port free when it starts again.
const SLOTS: u32 = 64;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// The first port of this process, and how many it has.
fn ports_of_process() -> (u32, u32) {
    #[expect(clippy::disallowed_methods, reason = "set by the test runner")]
    let variable = |name| std::env::var(name).ok();
    let slot = variable("NEXTEST_TEST_GLOBAL_SLOT");
    let slot = slot.and_then(|slot| slot.parse::<u32>().ok()).map(|slot| slot % SLOTS);
    // The run with another server, beside the usual one, has slots of its own: the last ones.
    let is_beside = variable("RATELIMITD_TEST_REDIS").is_some();
    let slot = slot.map(|slot| if is_beside { SLOTS - 1 - slot } else { slot });
    slot.map_or((FIRST, COUNT), |slot| (FIRST + slot * (COUNT / SLOTS), COUNT / SLOTS))
}

/// A port on which no server listens, on any address. The next 300 calls in this process return others.
pub fn free() -> u16 {
    let (first, count) = ports_of_process();
    // Concurrent processes start with different ports: consecutive process ids are 97 ports apart.
    let start = std::process::id().wrapping_mul(97);
    (0..count)
        .map(|_| first + start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % count)
        .filter_map(|port| u16::try_from(port).ok())
        .find(|port| TcpListener::bind(("0.0.0.0", *port)).is_ok())
        .expect("a free port")
}

#[test]
fn no_port_is_returned_twice() {
    let mut ports: Vec<u16> = (0..50).map(|_| free()).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 50);
}
