//! Finds clients that are gone: after some time without a call the server sends a PING, which every client answers.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use h2::{Ping, PingPong};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};

use crate::grpc::idle_watch::IdleWatch;

/// After this time without a call, and at most a third more, the server sends a PING. It closes the connection if no
/// answer comes in time.
pub(in crate::grpc) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
pub(in crate::grpc) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Silence is counted in parts of the interval, so that no call has to read the clock.
const PARTS: u32 = 3;

/// The watch over one connection.
pub(super) struct KeepAlive {
    has_calls: Arc<AtomicBool>,
    unanswered: BoxFuture<'static, ()>,
}

impl KeepAlive {
    /// `ping_pong`: h2 gives it away once for each connection.
    pub(super) fn new(ping_pong: Option<PingPong>, idle: Option<IdleWatch>) -> Self {
        let has_calls = idle.as_ref().map(IdleWatch::has_calls).unwrap_or_default();
        let unanswered: BoxFuture<'static, ()> = match ping_pong.zip(idle) {
            Some((ping_pong, idle)) => Box::pin(wait_until_unanswered(ping_pong, idle)),
            None => Box::pin(pending()),
        };
        Self { has_calls, unanswered }
    }

    pub(super) fn record_call(&self) {
        self.has_calls.store(true, Ordering::Relaxed);
    }

    /// Ready, once, when the client has not answered a PING in time.
    pub(super) fn poll_unanswered(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.unanswered.poll_unpin(cx)
    }
}

async fn wait_until_unanswered(mut ping_pong: PingPong, mut idle: IdleWatch) {
    loop {
        wait_for_silence(&mut idle).await;
        match timeout(KEEPALIVE_TIMEOUT, ping_pong.ping(Ping::opaque())).await {
            Ok(Ok(_pong)) => {}
            Ok(Err(error)) => {
                tracing::debug!(%error, "no PING can be sent: the connection ends");
                return pending().await;
            }
            Err(_) => return,
        }
    }
}

async fn wait_for_silence(idle: &mut IdleWatch) {
    let part = KEEPALIVE_INTERVAL / PARTS;
    let mut parts = interval_at(Instant::now() + part, part);
    parts.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut silent_parts = 0;
    while silent_parts < PARTS {
        parts.tick().await;
        silent_parts = if idle.end_part(part) { 0 } else { silent_parts + 1 };
    }
}
