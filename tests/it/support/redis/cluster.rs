//! A real Redis Cluster: three primaries, each with a third of the slots, and a replica of each if the test needs it.

use std::time::Duration;

use redis::FromRedisValue;

use super::Redis;
use crate::support::{ports, wait};

const PRIMARIES: usize = 3;
const SLOTS: usize = 16_384;

/// `cluster-node-timeout`: the other nodes mark a node as failed if it does not answer for this time.
pub const NODE_TIMEOUT: Duration = Duration::from_millis(1_200);

/// Nodes that know each other and serve every slot. They are killed on drop.
pub struct Cluster {
    nodes: Vec<Redis>,
    /// The settings of each node.
    settings: Vec<Vec<String>>,
}

impl Cluster {
    /// Three primaries.
    pub fn start() -> Self {
        Self::with_nodes(PRIMARIES)
    }

    /// Three primaries, each with a replica: node n + 3 is the replica of node n.
    pub fn with_replicas() -> Self {
        let cluster = Self::with_nodes(2 * PRIMARIES);
        for (primary, replica) in cluster.nodes[..PRIMARIES].iter().zip(&cluster.nodes[PRIMARIES..]) {
            let id: String = run(primary, &["CLUSTER", "MYID"]);
            run::<()>(replica, &["CLUSTER", "REPLICATE", &id]);
        }
        for primary in &cluster.nodes[..PRIMARIES] {
            // A replica acknowledges only if there is a write.
            run::<()>(primary, &["FLUSHALL"]);
            wait::expect("a replica that is up to date", || is_up_to_date(primary));
        }
        // Nodes learn the replicas by gossip: a failover needs the votes of primaries that know the replica.
        for node in &cluster.nodes {
            wait::expect("every node to know the replicas", || {
                run::<String>(node, &["CLUSTER", "NODES"]).matches("slave").count() == PRIMARIES
            });
        }
        cluster
    }

    fn with_nodes(count: usize) -> Self {
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

    /// Ends a node as a crash does.
    pub fn stop(&mut self, node: usize) {
        self.nodes[node].stop();
    }

    /// Starts a stopped node again. It has its slots, and no keys.
    pub fn restart(&mut self, node: usize) {
        self.nodes[node].restart_with(&words(&self.settings[node]));
    }

    /// Suspends a node (SIGSTOP): it keeps its connections and does not answer.
    pub fn hang(&self, node: usize) {
        self.nodes[node].signal("STOP");
    }

    /// The number of the primary that has the slot of a key after the start.
    pub fn primary_of(&self, key: &str) -> usize {
        let slot: usize = run(&self.nodes[PRIMARIES - 1], &["CLUSTER", "KEYSLOT", key]);
        (0..PRIMARIES).find(|n| slot < (n + 1) * SLOTS / PRIMARIES).expect("every slot has a primary")
    }

    /// Whether a node is a primary.
    pub fn is_primary(&self, node: usize) -> bool {
        run::<String>(&self.nodes[node], &["INFO", "replication"]).contains("role:master")
    }

    /// Begins to move a slot to another node, with the commands that tools of operators use.
    pub fn begin_move(&self, slot: &str, from: usize, to: usize) {
        let ids = [from, to].map(|n| run::<String>(&self.nodes[n], &["CLUSTER", "MYID"]));
        run::<()>(&self.nodes[to], &["CLUSTER", "SETSLOT", slot, "IMPORTING", &ids[0]]);
        run::<()>(&self.nodes[from], &["CLUSTER", "SETSLOT", slot, "MIGRATING", &ids[1]]);
    }

    /// Moves three keys of the slot. Returns false if the slot had no key.
    pub fn move_some(&self, slot: &str, from: usize, to: usize) -> bool {
        let keys: Vec<String> = run(&self.nodes[from], &["CLUSTER", "GETKEYSINSLOT", slot, "3"]);
        let port = self.nodes[to].port().to_string();
        for key in &keys {
            run::<()>(&self.nodes[from], &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        }
        !keys.is_empty()
    }

    /// Tells every primary that the slot has moved. Redis refuses this at a replica.
    pub fn end_move(&self, slot: &str, from: usize, to: usize) {
        let id: String = run(&self.nodes[to], &["CLUSTER", "MYID"]);
        let others = (0..self.nodes.len()).filter(|n| *n != from && *n != to && self.is_primary(*n));
        for node in [to, from].into_iter().chain(others) {
            run::<()>(&self.nodes[node], &["CLUSTER", "SETSLOT", slot, "NODE", &id]);
        }
    }
}

/// Runs a command that cannot fail.
pub fn run<T: FromRedisValue>(node: &Redis, words: &[&str]) -> T {
    node.run(words).unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Whether a replica has acknowledged all writes. A replica is online before it has received any.
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
    let (from, slot) =
        (cluster.primary_of(key), run::<u16>(&cluster.nodes()[0], &["CLUSTER", "KEYSLOT", key]));
    let (to, slot) = ((from + 1) % PRIMARIES, slot.to_string());
    run::<()>(&cluster.nodes()[from], &["SET", key, "value"]);
    assert!(cluster.nodes()[to].run::<String>(&["GET", key]).is_err());

    cluster.begin_move(&slot, from, to);
    while cluster.move_some(&slot, from, to) {}
    cluster.end_move(&slot, from, to);
    assert_eq!(run::<String>(&cluster.nodes()[to], &["GET", key]), "value");
    assert!(cluster.is_primary(to));
}
