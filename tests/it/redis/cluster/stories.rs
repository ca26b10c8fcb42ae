//! Random stories on a cluster: the relations, and the answers of the model.
//!
//! A request whose counters are in several slots has the answer of one store here, since only one caller plays a story:
//! what decision 10 and docs/redis-cluster.md ("Several slots in one request") allow beside that needs other requests
//! at the same time, an undo that is lost, or the microseconds between a grant and its undo, which are in no number
//! that is compared. So the calls are those of every story, over any number of slots. The servers have their own clock,
//! so the stories are lasting ones, and no time of an answer is compared.

use std::collections::HashSet;

use ::base::clock::{Clock, SystemClock};
use ::simulate::replay::{ReplayStore, ReplayStoreError};
use ::store::redis::RedisStore;
use engine::{Charges, Outcomes, Store};
use stories::lasting::{lasting, lasts, timeless, timeless_played};
use stories::model::answers;
use stories::play::{Played, Unplayable, play};
use stories::relations::{Broken, Checked, Relation};
use stories::run::{budget, check_stories};
use stories::story::Story;
use tokio::runtime::Runtime;

use super::cluster_store;
use crate::support::redis::cluster::{Cluster, run};

struct OnCluster {
    cluster: Cluster,
    runtime: Runtime,
    store: RedisStore,
    /// Requests with counters in several slots.
    over_slots: u64,
}

impl ReplayStore for OnCluster {
    /// Decides at the time of the servers.
    fn decide(&mut self, requests: &[(u64, &Charges)]) -> Result<Vec<Outcomes>, ReplayStoreError> {
        let mut outcomes = Vec::new();
        for (_, charges) in requests {
            let tags: HashSet<&str> = charges.keys().filter_map(|key| Some(key.split_once('}')?.0)).collect();
            self.over_slots += u64::from(tags.len() > 1);
            outcomes.push(self.runtime.block_on(self.store.decide(charges))?);
        }
        Ok(outcomes)
    }
}

impl OnCluster {
    fn start() -> Self {
        let (cluster, runtime) = (Cluster::start(), Runtime::new().expect("a runtime"));
        let store = runtime.block_on(async { cluster_store(&cluster) });
        Self { cluster, runtime, store, over_slots: 0 }
    }

    /// Plays a story, and removes its counters.
    fn play(&mut self, story: &Story) -> Result<Vec<Played>, Unplayable> {
        let played = play(story, self);
        self.cluster.nodes().iter().for_each(|node| run::<()>(node, &["FLUSHALL"]));
        Ok(timeless_played(played?))
    }
}

#[test]
fn the_relations_hold_on_a_cluster() {
    let mut cluster = OnCluster::start();
    for relation in Relation::ALL {
        let mut check = |story: &Story| {
            let mut is_lasting = true;
            let checked = relation.check(&lasting(story, SystemClock.now_us()), &mut |story| {
                is_lasting &= lasts(story);
                cluster.play(story)
            });
            if is_lasting { checked } else { Ok(false) }
        };
        check_stories(budget(25), &mut check).unwrap_or_else(|failure| panic!("{relation:?}: {failure}"));
    }
    assert!(cluster.over_slots > 0, "no request is over several slots");
}

#[test]
fn a_cluster_answers_as_the_model() {
    let mut cluster = OnCluster::start();
    let mut check = |story: &Story| -> Checked {
        let story = lasting(story, SystemClock.now_us());
        if !lasts(&story) {
            return Ok(false);
        }
        for (played, expected) in cluster.play(&story)?.into_iter().zip(answers(&story)) {
            let (played, expected) = (played.answer, timeless(expected));
            if played != expected {
                return Err(Broken::Differs(format!("model and cluster\n  {expected:?}\n  {played:?}")));
            }
        }
        Ok(true)
    };
    let checked = check_stories(budget(150), &mut check).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(checked > 100 && cluster.over_slots > 50, "{checked} stories, {} requests", cluster.over_slots);
}
