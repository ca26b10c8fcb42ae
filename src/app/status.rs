//! What the admin port says of the store: where it is, what it is, and how each worker gets on with it.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::stores::Stores;
use crate::engine::StoreError;
use crate::settings::{Store, StoreKind};
use crate::store::redis::{RedisStore, ServerInfo, script_name};

/// What is remembered for the page. Nothing in it is secret.
#[derive(Debug)]
pub(super) struct StoreStatus {
    kind: &'static str,
    topology: &'static str,
    addresses: Vec<String>,
    /// One store for each worker, and one for the pages.
    workers: Mutex<Vec<RedisStore>>,
    servers: Mutex<Vec<(String, Result<ServerInfo, StoreError>)>>,
}

impl StoreStatus {
    pub(super) fn new(settings: &Store) -> Self {
        let (kind, addresses) = match settings.kind {
            StoreKind::Memory => ("memory", Vec::new()),
            // They show themselves without what is secret.
            StoreKind::Redis => ("redis", settings.redis.urls.iter().map(ToString::to_string).collect()),
        };
        let topology = settings.redis.topology.name();
        Self { kind, topology, addresses, workers: Mutex::default(), servers: Mutex::default() }
    }

    /// One more worker asks Redis.
    pub(super) fn joins(&self, worker: RedisStore) {
        self.workers.lock().push(worker);
    }

    /// Whether Redis has ever answered: asked what it is, it has said something, if only that it does not say.
    fn is_reached(&self) -> bool {
        !self.servers.lock().is_empty()
    }

    /// What the servers said of themselves.
    pub(super) fn know(&self, servers: Vec<(String, Result<ServerInfo, StoreError>)>) {
        *self.servers.lock() = servers;
    }

    /// The page.
    pub(super) fn describe(&self, stores: &Stores) -> Value {
        let memory = stores.memory.stats();
        let mut page = json!({
            "kind": self.kind,
            "memory": {"keys": memory.keys, "evictions": memory.evictions},
        });
        if self.kind == "redis" {
            page["redis"] = self.redis(stores);
        }
        page
    }

    fn redis(&self, stores: &Stores) -> Value {
        let outage = stores.availability.last_outage();
        let denials = stores.denials.as_ref().map(|denials| denials.cache.stats());
        json!({
            "topology": self.topology,
            "addresses": self.addresses,
            "script": script_name(),
            "servers": self.servers.lock().iter().map(server).collect::<Vec<_>>(),
            "nodes": self.nodes(),
            "answers": self.is_reached() && outage.as_ref().is_none_or(|outage| outage.is_over),
            "last_outage": outage.map(|outage| json!({"at": timestamp(outage.at_us), "error": outage.error})),
            "deny_cache": denials.map(|stats| json!({"keys": stats.keys, "hits": stats.hits})),
        })
    }

    /// How many workers have each node's breaker in which state; a lone server has no address here.
    fn nodes(&self) -> BTreeMap<String, BTreeMap<&'static str, u64>> {
        let mut nodes: BTreeMap<String, BTreeMap<&'static str, u64>> = BTreeMap::new();
        for worker in self.workers.lock().iter() {
            for (address, state) in worker.nodes() {
                let address = if address.is_empty() { "server".to_owned() } else { address };
                *nodes.entry(address).or_default().entry(state.name()).or_default() += 1;
            }
        }
        nodes
    }
}

fn server((address, told): &(String, Result<ServerInfo, StoreError>)) -> Value {
    match told {
        Err(error) => json!({"address": address, "error": error.to_string()}),
        Ok(info) => json!({
            "address": address,
            "server": fact(&info.server),
            "eviction": fact(&info.eviction),
            "clock": fact(&info.clock),
            "concerns": info.concerns().iter().map(ToString::to_string).collect::<Vec<_>>(),
        }),
    }
}

/// What is known, or why it is not.
pub(super) fn fact(fact: &Result<impl ToString, StoreError>) -> String {
    fact.as_ref().map_or_else(|error| format!("unknown ({error})"), ToString::to_string)
}

pub(super) fn timestamp(us: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_micros(us)).to_string()
}
