//! Serves one connection, and ends it by age, at the stop, or because a new connection needs its place.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use engine::Store;
use futures_util::future::{Either, select};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::call::{CallStarter, DecisionCalls};
use super::connection::Turn;
use super::http2::connection::{ConnectionEnd, Http2Connection};
use super::open_calls::{ConnectionCalls, WorkerCalls};
use super::other_services::OpenStreams;
use super::server::GrpcOptions;
use super::silence::IdleWatch;
use crate::net::admission::Admitted;
use crate::telemetry::metrics::CloseReason;

/// How long a client whose calls are all decided may take to read its answers and to acknowledge the GOAWAY.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_secs(1);

/// What the connections of one worker share.
pub(super) struct ConnectionServer<S> {
    pub(super) decisions: Arc<DecisionCalls<S>>,
    pub(super) routes: Routes,
    pub(super) calls: Arc<WorkerCalls>,
    /// Shared by all workers.
    pub(super) streams: Arc<OpenStreams>,
    pub(super) options: GrpcOptions,
    pub(super) stop: CancellationToken,
}

impl<S: Store + 'static> ConnectionServer<S> {
    /// Serves `io` until the client closes it, or until it is too old, its place is needed, or the server stops; then
    /// finishes its calls.
    pub(super) async fn serve<I>(self: Arc<Self>, io: I, turn: Turn, place: Arc<Admitted>)
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let calls = self.calls.connect();
        let closing = self.stop.child_token();
        let starter = CallStarter {
            decisions: Arc::clone(&self.decisions),
            routes: self.routes.clone(),
            calls: Arc::clone(&calls),
            streams: self.streams.connect(),
            closing: closing.clone(),
        };
        let idle = IdleWatch::new(Arc::clone(&place), closing.clone());
        let unfinished = self.decisions.bounds.unfinished.clone();
        let mut connection = pin!(Http2Connection::new(io, starter, Arc::clone(&calls), idle, unfinished));
        let closes = pin!(self.age_or_closing(&closing));
        let ended = match select(in_turns(connection.as_mut(), &turn), closes).await {
            Either::Left((ended, _)) => Some(ended),
            Either::Right(_) => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                closing.cancel();
                if connection.has_leaked_many_streams() {
                    place.record_close(CloseReason::LeakedStreams);
                }
                connection.close_gracefully();
                finish(in_turns(connection, &turn), &calls, self.options.finish_within).await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }

    async fn age_or_closing(&self, closing: &CancellationToken) {
        match self.options.max_connection_age {
            Some(age) => {
                closing.run_until_cancelled(tokio::time::sleep(age)).await;
            }
            None => closing.cancelled().await,
        }
    }
}

/// Polls `connection` so that each poll is a turn.
fn in_turns<C>(mut connection: Pin<&mut C>, turn: &Turn) -> impl Future<Output = C::Output> + Unpin
where
    C: Future,
{
    poll_fn(move |cx| {
        turn.begin();
        connection.as_mut().poll(cx)
    })
}

/// Waits for the calls in flight and for the client to close the connection, but not for a client that only delays the
/// end.
async fn finish<C>(
    mut connection: C,
    calls: &ConnectionCalls,
    finish_within: Duration,
) -> Result<(), ConnectionEnd>
where
    C: Future<Output = Result<(), ConnectionEnd>> + Unpin,
{
    let mut patience = pin!(tokio::time::sleep(finish_within));
    loop {
        tokio::select! {
            // The connection first: an answer that is decided when the pause ends is still written.
            biased;
            ended = &mut connection => return ended,
            () = patience.as_mut() => return Ok(()),
            () = tokio::time::sleep(ACKNOWLEDGE_WITHIN) => {
                if !calls.has_pending_decisions() {
                    return Ok(());
                }
            }
        }
    }
}
