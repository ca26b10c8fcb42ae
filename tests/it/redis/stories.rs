//! Random stories on Redis: the relations, and the answers of the model.

use ::simulate::replay::{MemoryReplay, RedisReplay};
use stories::model::answers;
use stories::play::{Played, Unplayable, play};
use stories::relations::{Broken, Checked, Relation};
use stories::run::{budget, check_stories};
use stories::story::Story;

use super::replay::access;
use crate::support::redis::Redis;

/// Plays a story on Redis, and removes its counters.
fn play_on(store: &mut RedisReplay, story: &Story) -> Result<Vec<Played>, Unplayable> {
    let played = play(story, store);
    store.remove_keys().map_err(|error| Unplayable(error.to_string()))?;
    played
}

#[test]
fn the_relations_hold_on_redis() {
    let redis = Redis::start();
    let mut store = RedisReplay::connect(access(redis.url())).expect("Redis answers");
    for relation in Relation::ALL {
        let mut check = |story: &Story| relation.check(story, &mut |story| play_on(&mut store, story));
        check_stories(budget(40), &mut check).unwrap_or_else(|failure| panic!("{relation:?}: {failure}"));
    }
}

#[test]
fn redis_answers_as_the_model_and_as_memory() {
    let redis = Redis::start();
    let mut store = RedisReplay::connect(access(redis.url())).expect("Redis answers");
    let mut check = |story: &Story| -> Checked {
        let on_redis = play_on(&mut store, story)?;
        let on_memory = play(story, &mut MemoryReplay::new())?;
        let expected = answers(story);
        for ((redis, memory), expected) in on_redis.iter().zip(&on_memory).zip(&expected) {
            if redis.answer != *expected || redis.answer != memory.answer {
                let (redis, memory) = (&redis.answer, &memory.answer);
                return Err(Broken::Differs(format!(
                    "model, memory, Redis\n  {expected:?}\n  {memory:?}\n  {redis:?}"
                )));
            }
        }
        Ok(true)
    };
    check_stories(budget(300), &mut check).unwrap_or_else(|failure| panic!("{failure}"));
}
