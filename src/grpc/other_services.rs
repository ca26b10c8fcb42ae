//! The services beside the decision, which are tonic's: health, which reports what `/readyz` reports, and reflection
//! for tools without a copy of the contract. Bounds their streams, and ends them with their connection.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::future::{pending, ready};
use futures_util::stream::{BoxStream, Stream, StreamExt as _, once, unfold};
use http::HeaderMap;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::service::Routes;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::pb::FILE_DESCRIPTOR_SET;
use crate::decide::Readiness;
use crate::decide::readiness::NotReadyReasons;

/// The longest request for health or reflection.
const MAX_OTHER_MESSAGE_BYTES: usize = 4 * 1024;

/// The router of these services.
pub(super) fn other_services(readiness: Readiness) -> Result<Routes, tonic_reflection::server::Error> {
    let reflection = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    let health = HealthServer::new(HealthService(readiness));
    let health = health.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES);
    let v1 = reflection().build_v1()?;
    let v1alpha = reflection().build_v1alpha()?;
    let mut routes = Routes::builder();
    routes
        .add_service(health)
        .add_service(v1.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES))
        .add_service(v1alpha.max_decoding_message_size(MAX_OTHER_MESSAGE_BYTES));
    // `prepare` here saves it for each connection.
    Ok(routes.routes().prepare())
}

/// The service names that callers ask for: the whole server, and the name that envoyproxy/ratelimit uses.
const SERVICE_NAMES: [&str; 2] = ["", "ratelimit"];

/// Health. The service names above are the only ones while the process runs.
#[derive(Debug)]
struct HealthService(Readiness);

#[tonic::async_trait]
impl Health for HealthService {
    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if is_known(request.get_ref()) {
            Ok(Response::new(response(status(self.0.reasons()))))
        } else {
            Err(Status::not_found("the server has no service of this name"))
        }
    }

    /// Sends the status, and each change of it. A stream for an unknown name stays open, too, like the
    /// protocol demands: a client that gets an error instead would retry without end.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let statuses = if is_known(request.get_ref()) {
            statuses(&self.0).boxed()
        } else {
            once(ready(ServingStatus::ServiceUnknown)).chain(once(pending())).boxed()
        };
        Ok(Response::new(statuses.map(|status| Ok(response(status))).boxed()))
    }
}

fn is_known(request: &HealthCheckRequest) -> bool {
    SERVICE_NAMES.contains(&request.service.as_str())
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

fn status(reasons: NotReadyReasons) -> ServingStatus {
    if reasons.is_empty() { ServingStatus::Serving } else { ServingStatus::NotServing }
}

/// The current status and all later ones. Does not end.
fn statuses(readiness: &Readiness) -> impl Stream<Item = ServingStatus> + Send + 'static {
    unfold((readiness.subscribe(), None), async |(mut changes, last)| {
        loop {
            let current = status(*changes.borrow_and_update());
            if last != Some(current) {
                return Some((current, (changes, Some(current))));
            }
            if changes.changed().await.is_err() {
                // The sender is gone, so readiness cannot change any more.
                pending::<()>().await;
            }
        }
    })
}

/// The calls that last until their clients end them. Each holds memory for as long as its connection is open, so their
/// number has a bound of its own, for the whole process.
#[derive(Clone, Copy, Debug)]
pub(super) enum StreamKind {
    Watch,
    Reflection,
}

/// Enough: a client watches one service or two, and calls reflection once.
const MAX_STREAMS_OF_CONNECTION: usize = 16;
/// Each takes some 10 KB.
const MAX_WATCHES: usize = 4_096;
/// Each holds a window of 1 MiB of requests if its client takes no answers. Reflection is for people who look at the
/// service.
const MAX_REFLECTIONS: usize = 32;

/// The streams of the process.
#[derive(Debug, Default)]
pub(super) struct OpenStreams {
    watches: AtomicUsize,
    reflections: AtomicUsize,
}

/// The streams of one connection.
#[derive(Debug)]
pub(super) struct ConnectionStreams {
    process: Arc<OpenStreams>,
    own: Arc<AtomicUsize>,
}

/// Counts one stream until it is dropped.
#[derive(Debug)]
pub(super) struct OpenStream {
    process: Arc<OpenStreams>,
    kind: StreamKind,
    own: Arc<AtomicUsize>,
}

impl StreamKind {
    /// `None` if the call at this path is another one.
    pub(super) fn at_path(path: &str) -> Option<Self> {
        match path {
            "/grpc.health.v1.Health/Watch" => Some(Self::Watch),
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            | "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => Some(Self::Reflection),
            _ => None,
        }
    }
}

impl OpenStreams {
    /// A connection without streams.
    pub(super) fn connect(self: &Arc<Self>) -> ConnectionStreams {
        ConnectionStreams { process: Arc::clone(self), own: Arc::default() }
    }

    fn count(&self, kind: StreamKind) -> (&AtomicUsize, usize) {
        match kind {
            StreamKind::Watch => (&self.watches, MAX_WATCHES),
            StreamKind::Reflection => (&self.reflections, MAX_REFLECTIONS),
        }
    }
}

impl ConnectionStreams {
    /// Counts a stream, unless a bound forbids it.
    pub(super) fn open(&self, kind: StreamKind) -> Option<OpenStream> {
        let (all, most) = self.process.count(kind);
        add_below(&self.own, MAX_STREAMS_OF_CONNECTION)?;
        if add_below(all, most).is_none() {
            self.own.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(OpenStream { process: Arc::clone(&self.process), kind, own: Arc::clone(&self.own) })
    }
}

/// Adds 1 to a number that is below `most`.
fn add_below(number: &AtomicUsize, most: usize) -> Option<()> {
    let add = |number| (number < most).then_some(number + 1);
    number.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok().map(drop)
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.own.fetch_sub(1, Ordering::Relaxed);
        self.process.count(self.kind).0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer of these services. A stream can last as long as its connection, so it ends with a status when
/// the connection is to be closed.
pub(super) struct StreamBody {
    body: tonic::body::Body,
    closing: Pin<Box<WaitForCancellationFutureOwned>>,
    has_ended: bool,
    /// Counts a stream until its end.
    _stream: Option<OpenStream>,
}

impl StreamBody {
    /// Ends `body` when `closing` is cancelled.
    pub(super) fn new(
        body: tonic::body::Body,
        closing: CancellationToken,
        stream: Option<OpenStream>,
    ) -> Self {
        Self { body, closing: Box::pin(closing.cancelled_owned()), has_ended: false, _stream: stream }
    }
}

impl Body for StreamBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if polled.is_ready() || self.closing.as_mut().poll(cx).is_pending() {
            return polled;
        }
        self.has_ended = true;
        let mut trailers = HeaderMap::new();
        Status::unavailable("the server closes this connection").add_header(&mut trailers)?;
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;
    use crate::decide::NotReadyReason;

    fn asked(service: &str) -> Request<HealthCheckRequest> {
        Request::new(HealthCheckRequest { service: service.to_owned() })
    }

    #[tokio::test]
    async fn a_watch_sends_each_change_once() {
        let readiness = Readiness::not_ready(&[NotReadyReason::Starting]);
        let health = HealthService(readiness.clone());
        let mut watch = health.watch(asked("ratelimit")).await.expect("a stream").into_inner();
        let mut next =
            || watch.next().now_or_never().map(|sent| sent.expect("no end").expect("no error").status());
        assert_eq!((next(), next()), (Some(ServingStatus::NotServing), None));
        // A second reason does not change the status.
        readiness.set(NotReadyReason::Draining);
        assert_eq!(next(), None);
        readiness.clear(NotReadyReason::Starting);
        readiness.clear(NotReadyReason::Draining);
        assert_eq!((next(), next()), (Some(ServingStatus::Serving), None));
    }

    #[tokio::test]
    async fn a_watch_of_an_unknown_service_stays_open() {
        let readiness = Readiness::not_ready(&[]);
        let health = HealthService(readiness.clone());
        let mut watch = health.watch(asked("another")).await.expect("a stream").into_inner();
        let first = watch.next().await.expect("a message").expect("no error");
        assert_eq!(first.status(), ServingStatus::ServiceUnknown);
        readiness.set(NotReadyReason::Draining);
        assert!(watch.next().now_or_never().is_none(), "neither a message nor the end");
        let unknown = health.check(asked("another")).await.expect_err("a single answer is an error");
        assert_eq!(unknown.code(), tonic::Code::NotFound);
    }

    fn open_all(streams: &Arc<OpenStreams>, kind: StreamKind) -> Vec<OpenStream> {
        let of_connection = || {
            let connection = streams.connect();
            std::iter::from_fn(move || connection.open(kind))
        };
        std::iter::repeat_with(of_connection).take(1_000).flatten().collect()
    }

    #[test]
    fn streams_have_a_bound_of_the_process_and_of_a_connection() {
        let streams = Arc::<OpenStreams>::default();
        let connection = streams.connect();
        let own: Vec<_> = std::iter::from_fn(|| connection.open(StreamKind::Reflection)).collect();
        assert_eq!(own.len(), MAX_STREAMS_OF_CONNECTION);
        assert!(connection.open(StreamKind::Watch).is_none(), "both kinds share the bound of the connection");
        let reflections = open_all(&streams, StreamKind::Reflection);
        assert_eq!(reflections.len(), MAX_REFLECTIONS - MAX_STREAMS_OF_CONNECTION);
        let watches = open_all(&streams, StreamKind::Watch);
        assert_eq!(watches.len(), MAX_WATCHES);
        drop(own);
        assert!(connection.open(StreamKind::Watch).is_none(), "the process has as many as it may have");
        assert!(connection.open(StreamKind::Reflection).is_some());
        drop((reflections, watches));
        assert_eq!(connection.own.load(Ordering::Relaxed), 0);
        for kind in [StreamKind::Watch, StreamKind::Reflection] {
            assert_eq!(streams.count(kind).0.load(Ordering::Relaxed), 0, "{kind:?}");
        }
    }
}
