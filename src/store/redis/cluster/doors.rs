//! How the nodes of a cluster are reached: each at its own address, all with what the first seed's URL says otherwise.

use redis::{Client, ConnectionAddr, ConnectionInfo};

use super::slots::Address;

/// The seeds, and the way to any other node.
pub(super) struct Doors {
    seeds: Vec<(Address, Client)>,
    like: ConnectionInfo,
}

impl Doors {
    /// `None` without a seed.
    pub(super) fn new(seeds: Vec<ConnectionInfo>) -> Option<Self> {
        let like = seeds.first()?.clone();
        let seeds = seeds.into_iter().map(|seed| (address(&seed), open(seed))).collect();
        Some(Self { seeds, like })
    }

    /// The seeds, in the order given.
    pub(super) fn seeds(&self) -> &[(Address, Client)] {
        &self.seeds
    }

    /// A client for the node at that address. Connects to nothing.
    pub(super) fn client(&self, address: &Address) -> Client {
        let (host, port) = (address.host.clone(), address.port);
        let place = match self.like.addr() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure: *insecure, tls_params: tls_params.clone() }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        open(self.like.clone().set_addr(place))
    }
}

/// By which host a node that does not know its own is reached.
fn address(seed: &ConnectionInfo) -> Address {
    match seed.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Address { host: host.clone(), port: *port }
        }
        // A socket's server is on this machine.
        _ => Address { host: "localhost".to_owned(), port: 0 },
    }
}

fn open(info: ConnectionInfo) -> Client {
    Client::open(info).expect("connection details that were understood once are taken as they are")
}
