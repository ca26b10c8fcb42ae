//! The handshakes of a port that are not finished. They are bounded apart from the connections: a client that connects
//! and does not go on takes a place among them only, and not for long.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::transport::admission::{ConnectionBounds, network};

/// A handshake takes some 20 KB.
const MAX_HANDSHAKES: usize = 1_000;
/// A handshake that has taken longer gives its place to a new one. A client on another continent needs a third of it;
/// when all clients connect at once, those that wait for their turn must not displace each other.
const DISPLACED_AFTER: Duration = Duration::from_secs(1);

/// The most handshakes of a port at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeBounds {
    pub total: usize,
    /// From one IPv4 address or one IPv6 network of 64 bits.
    pub per_address: usize,
}

#[derive(Debug)]
pub(super) struct Handshakes {
    bounds: HandshakeBounds,
    open: Mutex<OpenHandshakes>,
}

#[derive(Debug, Default)]
struct OpenHandshakes {
    next: u64,
    /// The oldest first.
    by_age: BTreeMap<u64, OpenHandshake>,
}

#[derive(Debug)]
struct OpenHandshake {
    since: Instant,
    address: IpAddr,
    displaced: CancellationToken,
}

/// The place of a handshake among those of its port, until it is dropped.
#[derive(Debug)]
pub(super) struct HandshakePlace {
    handshakes: Arc<Handshakes>,
    id: u64,
    pub(super) since: Instant,
    /// Cancelled when a new handshake takes the place.
    pub(super) displaced: CancellationToken,
}

impl HandshakeBounds {
    /// At most half of the connections of the port, so that clients that do not finish leave the other half; of these
    /// at most half from one address.
    #[must_use]
    pub fn within(connections: ConnectionBounds) -> Self {
        let total = (connections.total / 2).clamp(1, MAX_HANDSHAKES);
        Self { total, per_address: total.div_ceil(2).min(connections.per_address) }
    }
}

impl Handshakes {
    pub(super) fn new(bounds: HandshakeBounds) -> Self {
        Self { bounds, open: Mutex::default() }
    }

    /// A place for a handshake of `client`; `None` if the bounds forbid it. At a bound the oldest handshake is
    /// displaced, if it is old enough: the oldest of the same address when that address has too many.
    pub(super) fn begin(self: &Arc<Self>, client: IpAddr) -> Option<HandshakePlace> {
        let (address, since) = (network(client), Instant::now());
        let open = &mut *self.open.lock();
        let from_address = open.by_age.values().filter(|other| other.address == address).count();
        if from_address >= self.bounds.per_address {
            open.displace(since, |other| other.address == address)?;
        } else if open.by_age.len() >= self.bounds.total {
            open.displace(since, |_| true)?;
        }
        let (id, displaced) = (open.next, CancellationToken::new());
        open.next += 1;
        open.by_age.insert(id, OpenHandshake { since, address, displaced: displaced.clone() });
        Some(HandshakePlace { handshakes: Arc::clone(self), id, since, displaced })
    }
}

impl OpenHandshakes {
    /// Displaces the oldest handshake that `may_go`; `None` if it is too young.
    fn displace(&mut self, now: Instant, may_go: impl Fn(&OpenHandshake) -> bool) -> Option<()> {
        let (&id, oldest) = self.by_age.iter().find(|(_, other)| may_go(other))?;
        if now.duration_since(oldest.since) < DISPLACED_AFTER {
            return None;
        }
        oldest.displaced.cancel();
        self.by_age.remove(&id);
        Some(())
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        self.handshakes.open.lock().by_age.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENTS: [[u8; 4]; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]];

    fn handshakes(total: usize, per_address: usize) -> Arc<Handshakes> {
        Arc::new(Handshakes::new(HandshakeBounds { total, per_address }))
    }

    #[test]
    fn handshakes_leave_half_of_the_connections() {
        // Connections of the port and of one address; handshakes of both.
        let table = [
            ((1, 1), (1, 1)),
            ((64, 32), (32, 16)),
            ((64, 10), (32, 10)),
            ((1_024, 512), (512, 256)),
            ((10_000, 5_000), (1_000, 500)),
        ];
        for ((total, per_address), expected) in table {
            let bounds = HandshakeBounds::within(ConnectionBounds { total, per_address });
            assert_eq!((bounds.total, bounds.per_address), expected, "of {total}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_handshake_gives_its_place_to_a_new_one_after_a_second() {
        let handshakes = handshakes(2, 2);
        let [a, b, c] = CLIENTS.map(IpAddr::from);
        let first = handshakes.begin(a).expect("room");
        tokio::time::advance(DISPLACED_AFTER / 2).await;
        let second = handshakes.begin(b).expect("room");
        tokio::time::advance(DISPLACED_AFTER / 2 - Duration::from_millis(1)).await;
        assert!(handshakes.begin(c).is_none(), "the first is not old enough");
        tokio::time::advance(Duration::from_millis(1)).await;
        let third = handshakes.begin(c).expect("in place of the first");
        assert!(first.displaced.is_cancelled() && !second.displaced.is_cancelled());
        assert!(handshakes.begin(a).is_none(), "the second is not old enough");
        drop(first);
        assert!(handshakes.begin(a).is_none(), "the place of the first is taken");
        drop(third);
        assert!(handshakes.begin(a).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_address_displaces_its_own_handshakes_only() {
        let handshakes = handshakes(4, 2);
        let [a, b, _] = CLIENTS.map(IpAddr::from);
        let other = handshakes.begin(b).expect("room");
        let first = handshakes.begin(a).expect("room");
        let second = handshakes.begin(a).expect("room");
        assert!(handshakes.begin(a).is_none(), "the share of the address is taken");
        tokio::time::advance(DISPLACED_AFTER).await;
        let third = handshakes.begin(a).expect("in place of the first");
        let displaced = [&other, &first, &second, &third].map(|place| place.displaced.is_cancelled());
        assert_eq!(displaced, [false, true, false, false]);
    }
}
