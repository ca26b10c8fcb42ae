//! The fast path: serves with the h2 crate what `tonic_server` serves with tonic, with the same answers, because tonic
//! takes longer for a call than the decision does. [Decision 20](../../../docs/decisions/0020-own-grpc-server-on-h2.md)
//! has the measurements.
//!
//! Entry points are the functions below: a handler and a [`Seat`] go in. A connection passes `connection_io` and
//! `connection`; a call passes `accepted_calls`, `call`, `decisions` (the boundary to `decide`) and `answering`.

mod accepted_calls;
mod answering;
mod balance;
mod call;
mod connection;
mod connection_io;
mod decisions;
mod message;
mod open_calls;
mod placement;
mod routed_calls;
mod served_connections;
mod silence;
#[cfg(test)]
mod tests;
mod undelivered;

use std::sync::Arc;

use engine::Store;

use self::balance::Balancer;
use self::call::CallServer;
use self::connection::ConnectionServer;
use self::connection_io::BYTES_PER_POLL;
use self::decisions::Decisions;
use self::message::MessageBounds;
use self::open_calls::WorkerCounts;
pub(super) use self::placement::MovingConnection;
pub(super) use self::routed_calls::StreamPlaces;
use self::served_connections::ServedConnections;
use crate::decide::Handler;
use crate::grpc::worker::Seat;
use crate::grpc::worker_link::{Arriving, Workers};

/// Moves connections between the workers according to load. Never returns.
pub(super) async fn balance(workers: Arc<Workers>) {
    Balancer { workers }.run().await;
}

/// Serves a worker's connections until shutdown, then waits until they are closed.
pub(super) async fn serve_connections<S: Store + 'static>(handler: Handler<S>, mut seat: Seat) {
    let (options, stop) = (seat.options, seat.stop.clone());
    let mut counts = WorkerCounts::new(&options, handler.failures.clone(), handler.meter.clone());
    counts.burst = Arc::clone(&seat.workers.burst);
    let calls = CallServer {
        bounds: MessageBounds { max_bytes: handler.max_message_bytes, unfinished: seat.unfinished },
        decisions: Decisions::new(handler),
        counts: Arc::new(counts),
        routes: seat.others,
    };
    let server = Arc::new(ConnectionServer {
        calls: Arc::new(calls),
        streams: seat.streams,
        options,
        bytes_per_poll: BYTES_PER_POLL,
        stop: seat.stop,
    });
    let mut served = ServedConnections::new(server, seat.workers, seat.own);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(arriving) = seat.inbox.arriving.recv() => match arriving {
                Arriving::New(accepted) => served.start(accepted),
                Arriving::Moved(moving) => served.go_on(moving),
            },
            Some(order) = seat.inbox.orders.recv() => served.give_away(order),
            Some(()) = served.one_leaves() => {}
        }
    }
    // A connection on its way here from another worker is served to its end.
    seat.inbox.arriving.close();
    while let Some(arriving) = seat.inbox.arriving.recv().await {
        if let Arriving::Moved(moving) = arriving {
            served.go_on(moving);
        }
    }
    let all_closed = async { while served.one_leaves().await.is_some() {} };
    if tokio::time::timeout(options.finish_within, all_closed).await.is_err() {
        tracing::warn!(waited = ?options.finish_within, "connections still open at shutdown; closing them");
    }
}
