//! Bounds the unfinished handshakes of a port, separately from its connections: a client that connects and then stalls
//! only occupies one of these slots, and not for long.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::net::admission::{ConnectionBounds, network};

/// A handshake takes some 20 KB.
const MAX_HANDSHAKES: usize = 1_000;
/// A handshake older than this can be displaced by a new one. A client on another continent needs a third of it; when
/// all clients connect together, handshakes that wait for the thread must not displace each other. An address with more
/// handshakes than the new one's gives up a slot immediately.
const DISPLACED_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Handshakes {
    bounds: ConnectionBounds,
    open: Mutex<OpenHandshakes>,
}

#[derive(Debug, Default)]
struct OpenHandshakes {
    next: u64,
    /// Oldest first.
    by_age: BTreeMap<u64, OpenHandshake>,
    by_address: HashMap<IpAddr, usize>,
}

#[derive(Debug)]
struct OpenHandshake {
    since: Instant,
    address: IpAddr,
    displaced: CancellationToken,
}

/// A handshake's slot on its port, until dropped.
#[derive(Debug)]
pub(super) struct HandshakePlace {
    handshakes: Arc<Handshakes>,
    id: u64,
    pub(super) since: Instant,
    /// Cancelled when a new handshake takes the slot.
    pub(super) displaced: CancellationToken,
}

/// Bounds a port's unfinished handshakes. They use at most half of its connections, so that stalled clients leave the
/// other half free. One address can start half of the handshakes.
pub fn handshake_bounds(connections: ConnectionBounds) -> ConnectionBounds {
    let total = (connections.total / 2).clamp(1, MAX_HANDSHAKES);
    ConnectionBounds { total, per_address: total.div_ceil(2).min(connections.per_address) }
}

impl Handshakes {
    pub(super) fn new(bounds: ConnectionBounds) -> Self {
        Self { bounds, open: Mutex::default() }
    }

    /// Returns a slot for a handshake of `client`; `None` at the bounds. If the client's address is at its bound, its
    /// oldest handshake is displaced, if old enough. If the port is at its bound, the oldest of all is displaced, if
    /// old enough; otherwise the oldest of the address with the most, if that address keeps at least as many as the
    /// client's address then has.
    pub(super) fn begin(self: &Arc<Self>, client: IpAddr) -> Option<HandshakePlace> {
        let (address, since) = (network(client), Instant::now());
        let open = &mut *self.open.lock();
        let from_address = open.by_address.get(&address).copied().unwrap_or(0);
        let displaced = if from_address >= self.bounds.per_address {
            Some(open.oldest_of(address).filter(|id| open.is_old(*id, since))?)
        } else if open.by_age.len() >= self.bounds.total {
            let oldest = open.by_age.keys().next().copied().filter(|id| open.is_old(*id, since));
            Some(oldest.or_else(|| open.of_the_most(from_address + 1))?)
        } else {
            None
        };
        if let Some(place) = displaced.and_then(|id| open.remove(id)) {
            place.displaced.cancel();
        }
        let (id, displaced) = (open.next, CancellationToken::new());
        open.next += 1;
        open.by_age.insert(id, OpenHandshake { since, address, displaced: displaced.clone() });
        *open.by_address.entry(address).or_default() += 1;
        Some(HandshakePlace { handshakes: Arc::clone(self), id, since, displaced })
    }
}

impl OpenHandshakes {
    fn is_old(&self, id: u64, now: Instant) -> bool {
        self.by_age.get(&id).is_some_and(|open| now.duration_since(open.since) >= DISPLACED_AFTER)
    }

    fn oldest_of(&self, address: IpAddr) -> Option<u64> {
        self.by_age.iter().find(|(_, open)| open.address == address).map(|(&id, _)| id)
    }

    /// Returns the oldest handshake of the address with the most, if that has more than `most`.
    fn of_the_most(&self, most: usize) -> Option<u64> {
        let (&address, &count) = self.by_address.iter().max_by_key(|(_, count)| **count)?;
        if count > most { self.oldest_of(address) } else { None }
    }

    fn remove(&mut self, id: u64) -> Option<OpenHandshake> {
        let removed = self.by_age.remove(&id)?;
        if let Some(count) = self.by_address.get_mut(&removed.address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&removed.address);
            }
        }
        Some(removed)
    }
}

impl Drop for HandshakePlace {
    fn drop(&mut self) {
        self.handshakes.open.lock().remove(self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENTS: [[u8; 4]; 3] = [[10, 0, 0, 1], [10, 0, 0, 2], [10, 0, 0, 3]];

    fn handshakes(total: usize, per_address: usize) -> Arc<Handshakes> {
        Arc::new(Handshakes::new(ConnectionBounds { total, per_address }))
    }

    #[test]
    fn handshakes_leave_half_of_the_connections() {
        // (connections of the port and per address, handshakes of the port and per address)
        let table = [
            ((1, 1), (1, 1)),
            ((64, 32), (32, 16)),
            ((64, 10), (32, 10)),
            ((1_024, 512), (512, 256)),
            ((10_000, 5_000), (1_000, 500)),
        ];
        for ((total, per_address), expected) in table {
            let bounds = handshake_bounds(ConnectionBounds { total, per_address });
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
    async fn the_address_with_the_most_handshakes_gives_a_place_at_once() {
        let handshakes = handshakes(4, 3);
        let [a, b, c] = CLIENTS.map(IpAddr::from);
        let first = handshakes.begin(b).expect("room");
        let greedy = [(); 3].map(|()| handshakes.begin(a).expect("room"));
        let second = handshakes.begin(c).expect("in place of the oldest of the greedy address");
        assert!(handshakes.begin(c).is_none(), "each of two addresses would then have two");
        assert!(handshakes.begin(a).is_none(), "no address has more");
        let displaced = [&first, &greedy[0], &greedy[1], &greedy[2], &second];
        let displaced = displaced.map(|place| place.displaced.is_cancelled());
        assert_eq!(displaced, [false, true, false, false, false]);
        drop((first, greedy, second));
        let open = handshakes.open.lock();
        assert!(open.by_age.is_empty() && open.by_address.is_empty(), "no memory of ended handshakes");
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
