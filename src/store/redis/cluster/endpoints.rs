//! How the nodes of a cluster are reached: each at its own address, all with what the first seed's URL says otherwise.

use crate::store::redis::address::Address;
use crate::store::redis::connect::Endpoint;

/// The seeds, and the way to any other node.
pub(super) struct Endpoints {
    seeds: Vec<(Address, Endpoint)>,
    like: Endpoint,
}

impl Endpoints {
    /// `None` without a seed.
    pub(super) fn new(seeds: Vec<Endpoint>) -> Option<Self> {
        let like = seeds.first()?.clone();
        let seeds = seeds.into_iter().map(|seed| (address(&seed), seed)).collect();
        Some(Self { seeds, like })
    }

    /// The seeds, in the order given.
    pub(super) fn seeds(&self) -> &[(Address, Endpoint)] {
        &self.seeds
    }

    /// The way to the node at that address.
    pub(super) fn to(&self, address: &Address) -> Endpoint {
        self.like.at(&address.host, address.port)
    }
}

/// By which host a node that does not know its own is reached.
fn address(seed: &Endpoint) -> Address {
    // A socket's server is on this machine.
    let (host, port) = seed.address().unwrap_or(("localhost", 0));
    Address { host: host.to_owned(), port }
}
