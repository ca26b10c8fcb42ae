//! Serves an HTTP port: a limited number of connections, each with timeouts, so that idle or slow clients
//! cannot occupy all connections.

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
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, service_fn};

use super::listener::{HttpListener, HttpStream};

/// The time limit for the request line and the headers, and for a keep-alive connection without a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// The time limit from the last header of the request to the answer, reading of the body included.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit of a write, for clients that do not read their answers.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// The size limit of the request line and all headers together.
const MAX_HEAD_BYTES: usize = 32 * 1024;

#[derive(Clone, Copy, Debug)]
pub struct HttpOptions {
    /// Further connections are closed at once.
    pub max_connections: usize,
    /// Time limit for requests in flight after the listener is closed.
    pub finish_within: Duration,
}

/// Serves `listener` until `stop`, then finishes the requests in flight.
pub async fn serve(listener: HttpListener, options: HttpOptions, router: Router, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            stream = listener.next_connection() => {
                if connections.len() < options.max_connections {
                    connections.spawn(serve_connection(stream, router.clone(), stop.clone()));
                } else {
                    tracing::warn!("HTTP connection closed: the maximum number of connections is open");
                }
            }
            // Removes closed connections from the set.
            Some(_) = connections.join_next() => {}
        }
    }
    drop(listener);
    let all_closed = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(options.finish_within, all_closed).await.is_err() {
        tracing::warn!("HTTP connections were still open after {:?}", options.finish_within);
    }
}

async fn serve_connection(stream: HttpStream, router: Router, stop: CancellationToken) {
    let has_request = Arc::new(AtomicBool::new(false));
    let first_request = Arc::clone(&has_request);
    let service = service_fn(move |request: Request<Incoming>| {
        first_request.store(true, Ordering::Relaxed);
        answer(router.clone(), request.map(Body::new))
    });
    let mut stream = Box::pin(TimeoutStream::new(stream));
    stream.as_mut().set_write_timeout_pinned(Some(WRITE_TIMEOUT));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    let ended = match select(std::pin::pin!(connection), std::pin::pin!(stop.cancelled())).await {
        Either::Left((ended, _)) => ended,
        // hyper's graceful shutdown waits for the first request of a connection until HEADER_TIMEOUT.
        Either::Right(_) if !has_request.load(Ordering::Relaxed) => return,
        Either::Right(((), mut connection)) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "an HTTP connection ended early");
    }
}

async fn answer(router: Router, request: Request<Body>) -> Result<Response, Infallible> {
    match tokio::time::timeout(ANSWER_TIMEOUT, router.oneshot(request)).await {
        Ok(answered) => answered,
        Err(_) => Ok(StatusCode::REQUEST_TIMEOUT.into_response()),
    }
}
