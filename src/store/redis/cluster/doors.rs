//! How the nodes of a cluster are reached: each at its own address, all with what the first seed's URL says otherwise.

use super::super::dial::Door;
use super::slots::Address;

/// The seeds, and the way to any other node.
pub(super) struct Doors {
    seeds: Vec<(Address, Door)>,
    like: Door,
}

impl Doors {
    /// `None` without a seed.
    pub(super) fn new(seeds: Vec<Door>) -> Option<Self> {
        let like = seeds.first()?.clone();
        let seeds = seeds.into_iter().map(|seed| (address(&seed), seed)).collect();
        Some(Self { seeds, like })
    }

    /// The seeds, in the order given.
    pub(super) fn seeds(&self) -> &[(Address, Door)] {
        &self.seeds
    }

    /// The way to the node at that address.
    pub(super) fn to(&self, address: &Address) -> Door {
        self.like.at(&address.host, address.port)
    }
}

/// By which host a node that does not know its own is reached.
fn address(seed: &Door) -> Address {
    // A socket's server is on this machine.
    let (host, port) = seed.address().unwrap_or(("localhost", 0));
    Address { host: host.to_owned(), port }
}
