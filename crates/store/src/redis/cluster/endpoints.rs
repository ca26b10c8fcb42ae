//! How the nodes of a cluster are reached: each at its own address, with the user, password, database and TLS of the
//! first seed.

use crate::redis::address::Address;
use crate::redis::connect::Endpoint;

/// The endpoints of the seeds, and of any other node.
pub(super) struct Endpoints {
    seeds: Vec<(Address, Endpoint)>,
    template: Endpoint,
}

impl Endpoints {
    /// `None` without a seed.
    pub(super) fn new(seeds: Vec<Endpoint>) -> Option<Self> {
        let template = seeds.first()?.clone();
        let seeds = seeds.into_iter().map(|seed| (seed_address(&seed), seed)).collect();
        Some(Self { seeds, template })
    }

    /// The seeds, in the order of the settings.
    pub(super) fn seeds(&self) -> &[(Address, Endpoint)] {
        &self.seeds
    }

    /// The endpoint of the node at this address.
    pub(super) fn at(&self, address: &Address) -> Endpoint {
        self.template.at(&address.host, address.port)
    }
}

/// The address of a seed. Replies of the seed may have an empty host, which then means the host of this address.
fn seed_address(seed: &Endpoint) -> Address {
    // The server behind a Unix socket runs on this machine.
    let (host, port) = seed.address().unwrap_or(("localhost", 0));
    Address { host: host.to_owned(), port }
}
