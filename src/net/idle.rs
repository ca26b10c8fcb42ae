//! A port's idle connections. They are asked to close before the port is full, so that connections that stay idle do
//! not keep clients out.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio_util::sync::CancellationToken;

/// The idle connections of one port. Ids increase in the order in which the connections became idle.
#[derive(Debug, Default)]
pub(super) struct IdleConnections {
    by_address: HashMap<IpAddr, BTreeMap<u64, IdleConnection>>,
    /// The same addresses, each with its number of idle connections.
    by_number: BTreeSet<(usize, IpAddr)>,
    /// Connections that were asked to close, but are still open.
    closing: HashSet<u64>,
    /// Id of the next connection that becomes idle.
    next: u64,
}

/// How to close an idle connection.
#[derive(Clone, Debug)]
pub(crate) struct IdleConnection {
    /// Set by a call. It may have arrived after the connection became idle.
    pub(crate) has_calls: Arc<AtomicBool>,
    pub(crate) closing: CancellationToken,
}

impl IdleConnections {
    pub(super) fn insert(&mut self, address: IpAddr, idle: IdleConnection) -> u64 {
        let id = self.next;
        self.next += 1;
        let of_address = self.by_address.entry(address).or_default();
        self.by_number.remove(&(of_address.len(), address));
        of_address.insert(id, idle);
        self.by_number.insert((of_address.len(), address));
        id
    }

    /// Forgets a connection that is busy again, or has ended.
    pub(super) fn remove(&mut self, address: IpAddr, id: u64) {
        self.closing.remove(&id);
        self.take(address, id);
    }

    fn take(&mut self, address: IpAddr, id: u64) -> Option<IdleConnection> {
        let of_address = self.by_address.get_mut(&address)?;
        let taken = of_address.remove(&id)?;
        let left = of_address.len();
        self.by_number.remove(&(left + 1, address));
        if left == 0 {
            self.by_address.remove(&address);
        } else {
            self.by_number.insert((left, address));
        }
        Some(taken)
    }

    /// Connections that were asked to close, but are still open.
    pub(super) fn closing(&self) -> usize {
        self.closing.len()
    }

    /// Returns the connection to close: the longest idle one of the address with the most idle connections.
    pub(super) fn next_to_close(&mut self) -> Option<CancellationToken> {
        loop {
            let &(_, address) = self.by_number.last()?;
            let (&id, _) = self.by_address.get(&address)?.first_key_value()?;
            let idle = self.take(address, id)?;
            if !idle.has_calls.load(Ordering::Relaxed) {
                self.closing.insert(id);
                return Some(idle.closing);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_connection_of_the_address_with_the_most_is_closed_first() {
        let mut idle = IdleConnections::default();
        let address = |number: u8| IpAddr::from([10, 0, 0, number]);
        let entry = || IdleConnection {
            has_calls: Arc::new(AtomicBool::new(false)),
            closing: CancellationToken::new(),
        };
        // In the order in which they became idle.
        let addresses = [1, 2, 2, 3, 3, 3].map(address);
        let entries = addresses.map(|_| entry());
        let ids = [0, 1, 2, 3, 4, 5].map(|at: usize| idle.insert(addresses[at], entries[at].clone()));
        // A call has just arrived on the first connection of the third address.
        entries[3].has_calls.store(true, Ordering::Relaxed);
        let mut closed = Vec::new();
        while let Some(closing) = idle.next_to_close() {
            closing.cancel();
            let is_new = |at: &usize| entries[*at].closing.is_cancelled() && !closed.contains(at);
            let new = (0..entries.len()).find(is_new).expect("one of them");
            closed.push(new);
        }
        // Of addresses with equally many connections, the greatest comes first.
        assert_eq!(closed, [4, 1, 5, 2, 0]);
        assert_eq!(idle.closing(), 5);
        for (address, id) in addresses.into_iter().zip(ids) {
            idle.remove(address, id);
        }
        assert!(idle.closing.is_empty() && idle.by_address.is_empty() && idle.by_number.is_empty());
    }
}
