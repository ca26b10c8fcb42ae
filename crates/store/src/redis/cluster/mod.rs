//! A Redis Cluster: chooses the node that decides a request.
//!
//! A request whose keys share a slot goes to the slot's primary (`router`). A request over several slots is decided
//! slot by slot (`reserve`). Replicas are never used.

mod refresh;
mod refresh_signal;
mod router;
mod slot_map;
mod slot_ranges;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub(super) use self::router::Router;
use crate::redis::error::OptionsError;
use crate::redis::node::QueueDepth;
use crate::redis::options::RedisOptions;
use crate::redis::tasks::Tasks;

/// Starts loading the slot map. The nodes can start later. `prefix` comes before the addresses in the node names.
pub(super) fn start(
    options: &RedisOptions,
    prefix: &'static str,
    queue_depth: QueueDepth,
    tasks: &Arc<Tasks>,
) -> Result<Arc<Router>, OptionsError> {
    let router = Arc::new(Router::new(options, prefix, queue_depth, Arc::clone(tasks))?);
    tasks.spawn_loop("slot map refresh", &router.closing, refresh::run(Arc::clone(&router)));
    Ok(router)
}
