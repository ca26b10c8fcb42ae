//! The fast path: a server of our own on the h2 crate, in place of tonic's (`tonic_server`), which takes more time for
//! a call than the decision takes ([decision 20](../../../docs/decisions/0020-own-grpc-server-on-h2.md)). Its callers
//! see the same answers. Its border is this file: a handler and a [`Seat`] in, and connections served until the stop.
//!
//! The road of a connection:
//! - `connection`: its life, from the handshake of HTTP/2 to GOAWAY, among `served_connections`. Its task reads frames
//!   and writes answers.
//! - `connection_io`: its bytes on the way to h2, bounded in time and number
//! - `silence`: PINGs while it has no calls
//! - `balance`: as many workers as the load needs; connections move between them (`placement`)
//!
//! The road of a call, on the task of its connection:
//! - `accepted_calls`: the calls that have arrived, started in order, or held while the store has enough to decide
//! - `open_calls`: how many calls a connection and its worker have
//! - `call`: its head is read, and it is started; then its message is read (`message`)
//! - `decisions`: the border towards `decide`. Its one function is all that this folder knows of rules, limits and the
//!   store.
//! - `answering`: the answer is sent. A call that waits for its message, the store or a client continues in a task of
//!   its own.
//!
//! A decision takes less time than the task, the boxed body and the timer that a general HTTP server gives to each
//! call. Here a call whose message has arrived with its headers is started on the task of its connection, and answered
//! there if its counters are in memory or the deny cache denies it. The calls of the other services, which are tonic's,
//! take the road of `routed_calls`.

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

/// Moves connections between the workers, as the load needs it. Never returns.
pub(super) async fn balance(workers: Arc<Workers>) {
    Balancer { workers }.run().await;
}

/// Serves the connections of a worker until told to stop, then waits until they are closed.
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
    // A connection that is on its way here from another worker is served to its end.
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
