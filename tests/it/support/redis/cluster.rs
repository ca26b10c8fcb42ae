//! A real Redis Cluster: three primaries, each with a third of the slots, and a replica each where the test wants them.

use std::time::Duration;

use redis::FromRedisValue;

use super::Redis;
use crate::support::{ports, wait};

const PRIMARIES: usize = 3;
const SLOTS: usize = 16_384;

/// After so long without a word from a node the others hold it for dead.
pub const NODE_TIMEOUT: Duration = Duration::from_millis(1_200);

/// Nodes that know each other and serve every slot, gone when this is dropped.
pub struct Cluster {
    nodes: Vec<Redis>,
    /// What each was started with.
    settings: Vec<Vec<String>>,
}

impl Cluster {
    /// Three primaries.
    pub fn start() -> Self {
        Self::of(PRIMARIES)
    }

    /// Three primaries, each with a replica: that of node n is node n + 3.
    pub fn with_replicas() -> Self {
        let cluster = Self::of(2 * PRIMARIES);
        for (primary, replica) in cluster.nodes[..PRIMARIES].iter().zip(&cluster.nodes[PRIMARIES..]) {
            let id: String = run(primary, &["CLUSTER", "MYID"]);
            run::<()>(replica, &["CLUSTER", "REPLICATE", &id]);
        }
        for primary in &cluster.nodes[..PRIMARIES] {
            // Something to acknowledge.
            run::<()>(primary, &["FLUSHALL"]);
            wait::expect("a replica that is up to date", || is_up_to_date(primary));
        }
        // Who is whose replica is gossip too: a failover needs the votes of primaries that have heard of it.
        for node in &cluster.nodes {
            wait::expect("everyone to know the replicas", || {
                run::<String>(node, &["CLUSTER", "NODES"]).matches("slave").count() == PRIMARIES
            });
        }
        cluster
    }

    fn of(count: usize) -> Self {
        let settings: Vec<Vec<String>> = (0..count).map(|_| settings()).collect();
        let nodes: Vec<Redis> = settings.iter().map(|settings| Redis::start_with(&words(settings))).collect();
        for (n, node) in nodes.iter().enumerate() {
            run::<()>(node, &["CLUSTER", "SET-CONFIG-EPOCH", &(n + 1).to_string()]);
            if n < PRIMARIES {
                let (first, after) = (n * SLOTS / PRIMARIES, (n + 1) * SLOTS / PRIMARIES);
                run::<()>(node, &["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &(after - 1).to_string()]);
            }
            let bus: String = run::<Vec<String>>(node, &["CONFIG", "GET", "cluster-port"]).remove(1);
            run::<()>(&nodes[0], &["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string(), &bus]);
        }
        for node in &nodes {
            wait::expect("a cluster that serves", || {
                let state: String = run(node, &["CLUSTER", "INFO"]);
                state.contains("cluster_state:ok") && state.contains(&format!("cluster_known_nodes:{count}"))
            });
        }
        Self { nodes, settings }
    }

    /// The nodes, primaries first.
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// One URL for each node.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Redis::url).collect()
    }

    /// Ends a node as a crash would.
    pub fn stop(&mut self, node: usize) {
        self.nodes[node].stop();
    }

    /// Starts a node that was stopped: it has its slots, and none of their keys.
    pub fn restart(&mut self, node: usize) {
        self.nodes[node].restart_with(&words(&self.settings[node]));
    }

    /// Stops a node in its tracks: it keeps its connections and answers nothing any more.
    pub fn hang(&self, node: usize) {
        self.nodes[node].signal("STOP");
    }

    /// The primary that was given the slot of a key at the start.
    pub fn home(&self, key: &str) -> usize {
        let slot: usize = run(&self.nodes[PRIMARIES - 1], &["CLUSTER", "KEYSLOT", key]);
        (0..PRIMARIES).find(|n| slot < (n + 1) * SLOTS / PRIMARIES).expect("every slot has a primary")
    }

    /// Whether a node serves as a primary.
    pub fn is_primary(&self, node: usize) -> bool {
        run::<String>(&self.nodes[node], &["INFO", "replication"]).contains("role:master")
    }

    /// The slots' move to another node, step by step as operators' tools take it.
    pub fn begin_move(&self, slot: &str, from: usize, to: usize) {
        let ids = [from, to].map(|n| run::<String>(&self.nodes[n], &["CLUSTER", "MYID"]));
        run::<()>(&self.nodes[to], &["CLUSTER", "SETSLOT", slot, "IMPORTING", &ids[0]]);
        run::<()>(&self.nodes[from], &["CLUSTER", "SETSLOT", slot, "MIGRATING", &ids[1]]);
    }

    /// Moves a few of the slot's keys. False when none is left.
    pub fn move_some(&self, slot: &str, from: usize, to: usize) -> bool {
        let keys: Vec<String> = run(&self.nodes[from], &["CLUSTER", "GETKEYSINSLOT", slot, "3"]);
        let port = self.nodes[to].port().to_string();
        for key in &keys {
            run::<()>(&self.nodes[from], &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        }
        !keys.is_empty()
    }

    /// Tells everyone that the slot has moved.
    pub fn end_move(&self, slot: &str, from: usize, to: usize) {
        let id: String = run(&self.nodes[to], &["CLUSTER", "MYID"]);
        let others = (0..self.nodes.len()).filter(|n| *n != from && *n != to);
        for node in [to, from].into_iter().chain(others) {
            run::<()>(&self.nodes[node], &["CLUSTER", "SETSLOT", slot, "NODE", &id]);
        }
    }
}

/// Runs a command that cannot fail.
pub fn run<T: FromRedisValue>(node: &Redis, words: &[&str]) -> T {
    node.run(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Whether a replica has acknowledged all that there is. It is online before it gets anything.
fn is_up_to_date(primary: &Redis) -> bool {
    let replication: String = run(primary, &["INFO", "replication"]);
    let offset =
        replication.lines().find_map(|line| line.strip_prefix("master_repl_offset:")).unwrap_or_default();
    replication.contains(&format!("state=online,offset={},", offset.trim()))
}

fn settings() -> Vec<String> {
    let (bus, timeout) = (ports::free().to_string(), NODE_TIMEOUT.as_millis().to_string());
    let settings = [
        ["--cluster-enabled", "yes"],
        ["--cluster-port", &bus],
        ["--cluster-node-timeout", &timeout],
        ["--cluster-replica-validity-factor", "0"],
        ["--cluster-require-full-coverage", "no"],
        ["--repl-diskless-sync-delay", "0"],
    ];
    settings.concat().into_iter().map(str::to_owned).collect()
}

fn words(settings: &[String]) -> Vec<&str> {
    settings.iter().map(String::as_str).collect()
}

#[test]
fn a_cluster_serves_every_slot_and_a_slot_can_be_moved() {
    let cluster = Cluster::start();
    let key = "{moved}";
    let (from, slot) = (cluster.home(key), run::<u16>(&cluster.nodes()[0], &["CLUSTER", "KEYSLOT", key]));
    let (to, slot) = ((from + 1) % PRIMARIES, slot.to_string());
    run::<()>(&cluster.nodes()[from], &["SET", key, "value"]);
    assert!(cluster.nodes()[to].run::<String>(&["GET", key]).is_err());

    cluster.begin_move(&slot, from, to);
    while cluster.move_some(&slot, from, to) {}
    cluster.end_move(&slot, from, to);
    assert_eq!(run::<String>(&cluster.nodes()[to], &["GET", key]), "value");
    assert!(cluster.is_primary(to));
}
