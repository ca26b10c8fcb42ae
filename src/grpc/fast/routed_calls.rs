//! Passes the calls of all services except the decision (`other_services.rs`) to tonic's router, and their responses to
//! the client. Streams can last forever, so they are bounded in number, and end with their connection.

use std::future::poll_fn;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderName, Request, Response, Uri, header};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Bytes};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::service::Routes;

use super::answering::{UNTAKEN, in_time, send_data, send_head, spawn_call, unless_reset};
use super::message::RequestBody;
use super::open_calls::OpenCall;
use crate::grpc::head::CALL_TIMEOUT;

const HEALTH_WATCH: &str = "/grpc.health.v1.Health/Watch";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";

const READ_BY_TONIC: [HeaderName; 4] = [
    header::CONTENT_TYPE,
    HeaderName::from_static("grpc-encoding"),
    HeaderName::from_static("grpc-accept-encoding"),
    HeaderName::from_static("grpc-timeout"),
];

pub(super) struct RoutedCalls {
    streams: StreamPlaces,
    /// Permits for the streams of this connection.
    own_streams: Arc<Semaphore>,
    /// Cancelled when the connection should close.
    closing: CancellationToken,
}

pub(super) struct RoutedCall {
    response: BoxFuture<'static, Response<Body>>,
    /// Permits of a stream, which can stay open as long as its connection.
    stream: Option<OpenStream>,
    /// Cancelled when the connection should close.
    closing: CancellationToken,
}

impl RoutedCalls {
    pub(super) fn new(streams: StreamPlaces, closing: CancellationToken) -> Self {
        Self { streams, own_streams: Arc::new(Semaphore::new(MAX_STREAMS_OF_CONNECTION)), closing }
    }

    /// `None` if the call would exceed a bound on streams.
    pub(super) fn start(&self, request: Request<RequestBody>, routes: &Routes) -> Option<RoutedCall> {
        let stream = match self.streams.at_path(request.uri().path()) {
            Some(places) => Some(self.open_stream(places)?),
            None => None,
        };
        let answered = routes.clone().call(with_short_head(request));
        let response = Box::pin(async move {
            let Ok(response) = answered.await;
            response
        });
        Some(RoutedCall { response, stream, closing: self.closing.clone() })
    }

    /// Takes a permit of the process and one of the connection. `None` if either has run out.
    fn open_stream(&self, places: &Arc<Semaphore>) -> Option<OpenStream> {
        let own = Arc::clone(&self.own_streams).try_acquire_owned().ok()?;
        let place = Arc::clone(places).try_acquire_owned().ok()?;
        Some(OpenStream { _own: own, _place: place })
    }
}

/// Waits for a routed call's response, and sends it.
pub(super) fn spawn_routed(
    mut respond: SendResponse<Bytes>,
    RoutedCall { response, stream, closing }: RoutedCall,
    open: OpenCall,
) {
    spawn_call(async move {
        // A stream has its response as soon as its first message has arrived.
        let Ok(response) = timeout(CALL_TIMEOUT, unless_reset(&mut respond, response)).await else {
            return drop(open.counts.record(UNTAKEN));
        };
        let Some(response) = response else { return };
        let sent = send_response(respond, response, &closing);
        if stream.is_some() {
            sent.await;
        } else {
            in_time(sent, &open).await;
        }
    });
}

/// Sends the response, and waits until the client has taken it.
async fn send_response(
    mut respond: SendResponse<Bytes>,
    response: Response<Body>,
    closing: &CancellationToken,
) {
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
        && let Err(error) = send_body(&mut stream, body, closing).await
    {
        tracing::debug!(%error, "client did not read the whole response");
    }
}

/// Sends a body with its trailers, and ends the stream. A stream can last as long as its connection, so it ends with a
/// status when the connection should close.
async fn send_body(
    stream: &mut SendStream<Bytes>,
    mut body: Body,
    closing: &CancellationToken,
) -> Result<(), h2::Error> {
    loop {
        let frame = tokio::select! {
            biased;
            frame = body.frame() => frame,
            () = closing.cancelled() => return stream.send_trailers(unavailable()),
            _ = poll_fn(|cx| stream.poll_reset(cx)) => return Err(Reason::CANCEL.into()),
        };
        let frame = match frame {
            None => return stream.send_data(Bytes::new(), true),
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                tracing::debug!(%error, "response ended early");
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Ok(());
            }
        };
        match frame.into_data() {
            Ok(data) => send_data(stream, data).await?,
            Err(other) => {
                if let Ok(trailers) = other.into_trailers() {
                    return stream.send_trailers(trailers);
                }
            }
        }
    }
}

fn unavailable() -> HeaderMap {
    let mut trailers = HeaderMap::new();
    let added = Status::unavailable("the server closes this connection").add_header(&mut trailers);
    added.expect("the text of the status is ASCII");
    trailers
}

/// Reduces the request to the headers that tonic reads, without its query. tonic keeps a call's head until its message
/// has arrived, and in memory a head can take seventy times the bytes sent.
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

/// A client watches one or two services, and calls reflection once.
const MAX_STREAMS_OF_CONNECTION: usize = 16;
/// Each takes some 10 KB.
const MAX_WATCHES: usize = 4_096;
/// Each holds a window of 1 MiB of requests if its client takes no answers. Reflection is for people who inspect the
/// service.
const MAX_REFLECTIONS: usize = 32;

/// Permits for calls that last until their clients end them. Each holds memory as long as its connection is open, so
/// their number is bounded for the whole process. Clones share the permits.
#[derive(Clone, Debug)]
pub(in crate::grpc) struct StreamPlaces {
    watches: Arc<Semaphore>,
    reflections: Arc<Semaphore>,
}

/// Holds a stream's permits until dropped.
#[derive(Debug)]
struct OpenStream {
    _own: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
}

impl Default for StreamPlaces {
    fn default() -> Self {
        let places = |number| Arc::new(Semaphore::new(number));
        Self { watches: places(MAX_WATCHES), reflections: places(MAX_REFLECTIONS) }
    }
}

impl StreamPlaces {
    /// Permits for the call at this path; `None` for any other call.
    fn at_path(&self, path: &str) -> Option<&Arc<Semaphore>> {
        match path {
            HEALTH_WATCH => Some(&self.watches),
            REFLECTION | "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => {
                Some(&self.reflections)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEALTH_CHECK: &str = "/grpc.health.v1.Health/Check";

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

    /// Opens as many streams as new connections can.
    fn open_all(places: &StreamPlaces, path: &str) -> Vec<OpenStream> {
        let of_connection = || {
            let connection = RoutedCalls::new(places.clone(), CancellationToken::new());
            std::iter::from_fn(move || connection.open_stream(connection.streams.at_path(path)?))
        };
        std::iter::repeat_with(of_connection).take(1_000).flatten().collect()
    }

    #[test]
    fn streams_have_a_bound_of_the_process_and_of_a_connection() {
        let places = StreamPlaces::default();
        let connection = RoutedCalls::new(places.clone(), CancellationToken::new());
        let open = |path| connection.open_stream(places.at_path(path).expect("a stream"));
        let own: Vec<_> = std::iter::from_fn(|| open(REFLECTION)).collect();
        assert_eq!(own.len(), MAX_STREAMS_OF_CONNECTION);
        assert!(open(HEALTH_WATCH).is_none(), "both kinds share the bound of the connection");
        let reflections = open_all(&places, REFLECTION);
        assert_eq!(reflections.len(), MAX_REFLECTIONS - MAX_STREAMS_OF_CONNECTION);
        let watches = open_all(&places, HEALTH_WATCH);
        assert_eq!(watches.len(), MAX_WATCHES);
        drop(own);
        assert!(open(HEALTH_WATCH).is_none(), "the process has as many as it may have");
        assert!(open(REFLECTION).is_some());
        drop((reflections, watches));
        assert_eq!(connection.own_streams.available_permits(), MAX_STREAMS_OF_CONNECTION);
        assert_eq!(places.watches.available_permits(), MAX_WATCHES);
        assert_eq!(places.reflections.available_permits(), MAX_REFLECTIONS);
    }
}
