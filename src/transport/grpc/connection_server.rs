//! Serves one connection with hyper: the bounds of HTTP/2, the end of the connection by age or at the stop.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, select};
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use super::call::DecisionCalls;
use super::call_executor::CallExecutor;
use super::dispatch::Dispatch;
use super::open_calls::{ConnectionCalls, WorkerCalls};
use super::service::GrpcOptions;
use super::turn::Turn;
use crate::engine::Store;

/// Envoy opens one connection per worker thread and allows 1,024 calls at once on each.
pub(super) const MAX_CONCURRENT_STREAMS: u32 = 1_024;
/// Callers send few headers. The HTTP/2 layer refuses a longer list.
pub(super) const MAX_HEADER_LIST_BYTES: u32 = 16 * 1024;
/// After this time without a frame the server sends a PING. It closes the connection if no answer comes in time.
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
pub(super) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a client without undecided calls to take its answers and to acknowledge the GOAWAY.
const ACKNOWLEDGE_WITHIN: Duration = Duration::from_secs(1);

/// What the connections of one worker share.
pub(super) struct ConnectionServer<S> {
    pub(super) decisions: Arc<DecisionCalls<S>>,
    pub(super) routes: Routes,
    pub(super) calls: WorkerCalls,
    pub(super) options: GrpcOptions,
    pub(super) stop: CancellationToken,
}

impl<S: Store + 'static> ConnectionServer<S> {
    /// Serves `io` until the client closes it, or until it is too old or the server stops; then finishes its calls.
    pub(super) async fn serve<I>(self: Arc<Self>, io: I, turn: Turn)
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let calls = self.calls.connect();
        let closing = self.stop.child_token();
        let dispatch = Dispatch {
            decisions: Arc::clone(&self.decisions),
            routes: self.routes.clone(),
            calls: Arc::clone(&calls),
            closing: closing.clone(),
        };
        let http2 = http2_builder(CallExecutor(Arc::clone(&calls)));
        let mut connection = pin!(http2.serve_connection(TokioIo::new(io), dispatch));
        let ended = match select(in_turns(connection.as_mut(), &turn), pin!(self.stop_or_age())).await {
            Either::Left((ended, _)) => Some(ended),
            Either::Right(_) => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                closing.cancel();
                connection.as_mut().graceful_shutdown();
                finish(in_turns(connection, &turn), &calls, self.options.finish_within).await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        }
    }

    async fn stop_or_age(&self) {
        match self.options.max_connection_age {
            Some(age) => {
                self.stop.run_until_cancelled(tokio::time::sleep(age)).await;
            }
            None => self.stop.cancelled().await,
        }
    }
}

fn http2_builder(executor: CallExecutor) -> http2::Builder<CallExecutor> {
    let mut http2 = http2::Builder::new(executor);
    http2
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST_BYTES)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        // gRPC has no use for it.
        .auto_date_header(false);
    http2
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

/// Waits for the calls in flight and for the client to close. A client that only delays the end is not waited for.
async fn finish<C>(mut connection: C, calls: &ConnectionCalls, finish_within: Duration) -> hyper::Result<()>
where
    C: Future<Output = hyper::Result<()>> + Unpin,
{
    let mut patience = pin!(tokio::time::sleep(finish_within));
    loop {
        tokio::select! {
            // The connection first: an answer that is decided when the pause ends is still written.
            biased;
            ended = &mut connection => return ended,
            () = patience.as_mut() => return Ok(()),
            () = tokio::time::sleep(ACKNOWLEDGE_WITHIN) => {
                if !calls.has_undecided() {
                    return Ok(());
                }
            }
        }
    }
}
