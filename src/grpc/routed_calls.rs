//! The calls of the services beside the decision (`other_services.rs`): passed to tonic's router, and their responses
//! to the client. Streams have no time limit, so they are bounded in number, and end with their connection.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderName, Request, Response, Uri, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::Status;
use tonic::codegen::Service as _;
use tonic::service::Routes;

use super::answering::{
    CALL_TIMEOUT, ClientGone, UNTAKEN, in_time, send_data, send_head, spawn_call, unless_reset,
};
use super::message::RequestBody;
use super::open_calls::{ConnectionCounts, OpenCall};

const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

const READ_BY_TONIC: [HeaderName; 4] = [
    header::CONTENT_TYPE,
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("grpc-accept-encoding"),
    HeaderName::from_static("grpc-timeout"),
];

/// Starts the routed calls of one connection.
pub(super) struct RoutedCalls {
    pub(super) streams: ConnectionStreams,
    /// Cancelled when the connection is to be closed.
    pub(super) closing: CancellationToken,
}

/// A routed call that has started.
pub(super) struct RoutedCall {
    response: BoxFuture<'static, Response<StreamBody>>,
    /// A stream may stay open for as long as its connection.
    is_stream: bool,
}

impl RoutedCalls {
    /// `None` if the call would be one stream too many.
    pub(super) fn start(
        &self,
        request: Request<RequestBody>,
        routes: &Routes,
        counts: &Arc<ConnectionCounts>,
    ) -> Option<RoutedCall> {
        let kind = StreamKind::at_path(request.uri().path());
        let stream = match kind {
            Some(kind) => Some(self.streams.open(kind)?),
            None => None,
        };
        let is_health_check = request.uri().path() == HEALTH_CHECK;
        let answered = routes.clone().call(with_short_head(request));
        let closing = self.closing.clone();
        let counts = Arc::clone(counts);
        let response = Box::pin(async move {
            let timer = is_health_check.then(|| counts.start_health_check());
            let Ok(response) = answered.await;
            drop(timer);
            response.map(|body| StreamBody::new(body, closing, stream))
        });
        Some(RoutedCall { response, is_stream: kind.is_some() })
    }
}

/// Waits for the response of a routed call, and sends it.
pub(super) fn spawn_routed(
    mut respond: SendResponse<Bytes>,
    RoutedCall { response, is_stream }: RoutedCall,
    open: OpenCall,
) {
    spawn_call(async move {
        // A stream has its response as soon as its first message has arrived.
        let Ok(response) = timeout(CALL_TIMEOUT, unless_reset(&mut respond, response)).await else {
            return drop(open.record(UNTAKEN));
        };
        let Some(response) = response else { return };
        let sent = send_response(respond, response);
        if is_stream { sent.await } else { in_time(sent, &open).await }
    });
}

/// Sends the response, and waits for the client to take it.
async fn send_response(mut respond: SendResponse<Bytes>, response: Response<StreamBody>) {
    let (parts, body) = response.into_parts();
    let mut head = Response::from_parts(parts, ());
    if body.is_end_stream() {
        send_head(&mut respond, head, true);
        return;
    }
    if let Some(length) = body.size_hint().exact() {
        head.headers_mut().entry(header::CONTENT_LENGTH).or_insert_with(|| length.into());
    }
    if let Some(mut stream) = send_head(&mut respond, head, false)
        && let Err(ClientGone) = send_body(&mut stream, body).await
    {
        tracing::debug!("the client did not take the whole answer");
    }
}

/// Sends a body with its trailers, and ends the stream.
async fn send_body<B>(stream: &mut SendStream<Bytes>, mut body: B) -> Result<(), ClientGone>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    loop {
        let frame = {
            let mut next = pin!(body.frame());
            poll_fn(|cx| match next.as_mut().poll(cx) {
                Poll::Ready(frame) => Poll::Ready(Ok(frame)),
                Poll::Pending => stream.poll_reset(cx).map(|_| Err(ClientGone)),
            })
            .await?
        };
        let frame = match frame {
            None => return Ok(stream.send_data(Bytes::new(), true)?),
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                tracing::debug!(%error, "an answer ends early");
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Ok(());
            }
        };
        match frame.into_data() {
            Ok(data) => send_data(stream, data).await?,
            Err(other) => {
                if let Ok(trailers) = other.into_trailers() {
                    return Ok(stream.send_trailers(trailers)?);
                }
            }
        }
    }
}

/// The request with the headers that tonic reads, and without its query. tonic keeps the head of a call until its
/// message has arrived, and a head can take seventy times the bytes in which it was sent.
fn with_short_head<B>(request: Request<B>) -> Request<B> {
    let (mut parts, body) = request.into_parts();
    let mut kept = HeaderMap::with_capacity(READ_BY_TONIC.len());
    for name in READ_BY_TONIC {
        let value = parts.headers.remove(&name);
        kept.extend(value.map(|value| (name, value)));
    }
    parts.headers = kept;
    if parts.uri.query().is_some()
        && let Ok(path) = Uri::try_from(parts.uri.path())
    {
        parts.uri = path;
    }
    Request::from_parts(parts, body)
}

/// The calls that last until their clients end them. Each holds memory for as long as its connection is open, so their
/// number has a bound of its own, for the whole process.
#[derive(Clone, Copy, Debug)]
pub(super) enum StreamKind {
    Watch,
    Reflection,
}

/// A client watches one service or two, and calls reflection once.
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
    /// A new connection, which has no streams yet.
    pub(super) fn add_connection(self: &Arc<Self>) -> ConnectionStreams {
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
    use super::*;

    #[test]
    fn a_call_of_another_service_keeps_little_of_its_head() {
        let path = format!("http://server{HEALTH_CHECK}?{}", "q".repeat(10_000));
        let mut request = Request::post(path).header("content-type", "application/grpc");
        for n in 0..1_000 {
            request = request.header("x", n);
        }
        let request = request.header("grpc-timeout", "1S").header("x-long", "v".repeat(10_000));
        let short = with_short_head(request.body(()).expect("valid"));
        assert_eq!((short.method(), short.uri().path()), (&http::Method::POST, HEALTH_CHECK));
        assert_eq!(short.uri().query(), None);
        let kept: Vec<_> = short.headers().iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(kept, ["content-type", "grpc-timeout"]);
    }

    fn open_all(streams: &Arc<OpenStreams>, kind: StreamKind) -> Vec<OpenStream> {
        let of_connection = || {
            let connection = streams.add_connection();
            std::iter::from_fn(move || connection.open(kind))
        };
        std::iter::repeat_with(of_connection).take(1_000).flatten().collect()
    }

    #[test]
    fn streams_have_a_bound_of_the_process_and_of_a_connection() {
        let streams = Arc::<OpenStreams>::default();
        let connection = streams.add_connection();
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
