//! Serving an HTTP port: as many connections as allowed, none of which may keep a slot without using it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::future::{Either, select};
use http::{Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, service_fn};

use crate::transport::accept;

/// A client that sends its headers slower than this, or keeps an idle connection longer, is cut off.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// From the last header to the answer, the body included.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// A client that takes nothing of its answers for so long is cut off.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Room for the request line and all headers.
const MAX_HEAD_BYTES: usize = 32 * 1024;

/// How a port is served.
#[derive(Clone, Copy, Debug)]
pub struct HttpOptions {
    /// Open connections; further ones are closed at once.
    pub max_connections: usize,
    /// How long requests in flight may take to finish once nothing new is accepted.
    pub finish_within: Duration,
}

/// Serves `listener` until `stop`, then finishes what is in flight.
pub async fn serve(listener: TcpListener, options: HttpOptions, pages: Router, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            stream = accept::next(&listener) => {
                if connections.len() < options.max_connections {
                    connections.spawn(serve_connection(stream, pages.clone(), stop.clone()));
                } else {
                    tracing::warn!("an HTTP connection is refused: as many as allowed are open");
                }
            }
            // Keeps the set no larger than what is open.
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    let all_closed = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(options.finish_within, all_closed).await.is_err() {
        tracing::warn!("HTTP connections were still open after {:?}", options.finish_within);
    }
}

async fn serve_connection(stream: TcpStream, pages: Router, stop: CancellationToken) {
    let has_asked = Arc::new(AtomicBool::new(false));
    let noted = Arc::clone(&has_asked);
    let answering = service_fn(move |request: Request<Incoming>| {
        noted.store(true, Ordering::Relaxed);
        answer(pages.clone(), request.map(Body::new))
    });
    let mut stream = Box::pin(TimeoutStream::new(stream));
    stream.as_mut().set_write_timeout_pinned(Some(WRITE_TIMEOUT));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(answering));
    let ended = match select(std::pin::pin!(connection), std::pin::pin!(stop.cancelled())).await {
        Either::Left((ended, _)) => ended,
        // Whoever has asked nothing yet would be waited for until its time is up.
        Either::Right(_) if !has_asked.load(Ordering::Relaxed) => return,
        Either::Right(((), mut connection)) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection ended early");
    }
}

async fn answer(pages: Router, request: Request<Body>) -> Result<Response, Infallible> {
    match tokio::time::timeout(ANSWER_TIMEOUT, pages.oneshot(request)).await {
        Ok(answered) => answered,
        Err(_) => Ok(StatusCode::REQUEST_TIMEOUT.into_response()),
    }
}
