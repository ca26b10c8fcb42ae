//! Serves an HTTP port. The number of connections is bounded and each has timeouts, so that idle or slow clients cannot
//! occupy all connections; bodies must arrive in time.

use std::convert::Infallible;
use std::error::Error as _;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use futures_util::future::{Either, select};
use http::{Request, StatusCode};
use hyper::body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::time::Sleep;
use tokio_util::either::Either as ClearOrTls;
use tokio_util::sync::CancellationToken;
use tower::{ServiceExt, service_fn};

use super::connections::{HttpConnections, IdleSince};
use crate::decide::{Failures, NoDecision, Rights};
use crate::net::listener::PortStream;
use crate::net::socket::{ClientSocket, TlsSession, client_certificate, linger};
use crate::net::tls_port::PortTls;
use crate::net::unfinished::{ARRIVES_WITHIN, HeldBytes};
use crate::net::{Admission, PortListener, UnfinishedBytes};

/// Time limit for the request line and the headers, and for a keep-alive connection without a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit from the last header of a request to its answer, including reading the body.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of the request line and all headers together.
const MAX_HEAD_BYTES: usize = 32 * 1024;
/// Maximum bytes read and dropped after the last answer: four times what Go reads as headers.
const LINGER_BYTES: u64 = 4 * 1024 * 1024;

/// The client's address, in each request's extensions.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientAddress(pub(super) IpAddr);

/// What [`serve`] needs in addition to the listener.
#[derive(Clone, Debug)]
pub struct HttpService {
    pub router: Router,
    pub admission: Admission,
    /// `None`: clear text.
    pub tls: Option<PortTls>,
    /// Shared with the other ports.
    pub unfinished: UnfinishedBytes,
    /// Time limit for requests in flight after the listener is closed.
    pub finish_within: Duration,
    /// Counts unreadable heads; `None` for a port without decisions.
    pub failures: Option<Failures>,
    /// Of the port's callers, by their certificates.
    pub rights: Rights,
}

/// Serves `listener` until `stop`, then finishes the requests in flight.
pub async fn serve(listener: PortListener, service: HttpService, stop: CancellationToken) {
    let mut connections = HttpConnections::new(service.admission.clone());
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            (stream, client) = listener.next_connection(&service.admission) => {
                let (service, stop) = (service.clone(), stop.clone());
                connections.spawn(client, |idle| serve_client(stream, client, service, idle, stop));
            }
            () = connections.next_end() => {}
        }
    }
    drop(listener);
    if tokio::time::timeout(service.finish_within, connections.all_closed()).await.is_err() {
        tracing::warn!(
            waited = ?service.finish_within,
            "HTTP connections still open at shutdown; closing them"
        );
    }
}

/// Serves the client in clear text or after a TLS handshake. A handshake counts as idle, and ends at shutdown.
async fn serve_client(
    stream: PortStream,
    client: IpAddr,
    http: HttpService,
    idle: IdleSince,
    stop: CancellationToken,
) {
    let stream = match &http.tls {
        None => ClearOrTls::Left(ClientSocket::from(stream)),
        Some(tls) => {
            let Some(handshake) = tls.begin(client) else { return };
            let session = stop.run_until_cancelled(handshake.run(stream)).await.flatten();
            match session {
                Some(stream) => ClearOrTls::Right(stream),
                None => return,
            }
        }
    };
    serve_connection(stream, client, http, idle, stop).await;
}

/// Serves the client's requests, then lingers, so that a client still sending gets its answer as well.
async fn serve_connection(
    mut stream: ClearOrTls<ClientSocket, TlsSession>,
    client: IpAddr,
    http: HttpService,
    idle: IdleSince,
    stop: CancellationToken,
) {
    let certificate = match &stream {
        ClearOrTls::Left(_) => None,
        ClearOrTls::Right(session) => client_certificate(session),
    };
    let (failures, certificate) = (http.failures.clone(), http.rights.of_certificate(certificate.as_ref()));
    let has_request = Arc::new(AtomicBool::new(false));
    let first_request = Arc::clone(&has_request);
    let connection_idle = idle.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        first_request.store(true, Ordering::Relaxed);
        let mut request =
            request.map(|body| Body::new(BoundedBody::new(body, idle.clone(), &http.unfinished)));
        request.extensions_mut().insert(ClientAddress(client));
        request.extensions_mut().insert(certificate);
        let (answered, idle) = (answer(http.router.clone(), request), idle.clone());
        async move {
            let answer = answered.await;
            idle.becomes_idle();
            answer
        }
    });
    let ended = {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(MAX_HEAD_BYTES)
            .max_header_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(&mut stream), TowerToHyperService::new(service));
        match select(std::pin::pin!(connection), std::pin::pin!(stop.cancelled())).await {
            Either::Left((ended, _)) => ended,
            // hyper's graceful shutdown waits for the first request of a connection until HEADER_TIMEOUT.
            Either::Right(_) if !has_request.load(Ordering::Relaxed) => return,
            Either::Right(((), mut connection)) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "HTTP connection ended early");
        if let (Some(failures), Some(refused)) = (failures, refused_head(&error)) {
            failures.record(refused);
        }
    }
    connection_idle.lingers();
    stop.run_until_cancelled(linger(stream, LINGER_BYTES)).await;
}

/// Returns why hyper answered a request's head with 431 or 400; `None` for any other error of its connection.
fn refused_head(error: &hyper::Error) -> Option<NoDecision> {
    match (error.is_parse_too_large(), error.is_parse()) {
        (true, _) => Some(NoDecision::UNREAD_HEADERS),
        (false, true) => {
            Some(NoDecision::malformed("the request line and the headers are not as HTTP/1.1 requires"))
        }
        (false, false) => None,
    }
}

async fn answer(router: Router, request: Request<Body>) -> Result<Response, Infallible> {
    match tokio::time::timeout(ANSWER_TIMEOUT, router.oneshot(request)).await {
        Ok(answered) => answered,
        Err(_) => Ok(StatusCode::REQUEST_TIMEOUT.into_response()),
    }
}

/// A request body that must arrive in time, and whose bytes count as unfinished until then. Its connection counts as
/// idle until the body is complete.
struct BoundedBody {
    body: Incoming,
    connection: IdleSince,
    received: usize,
    share: HeldBytes,
    /// Starts when the reader first waits for the body.
    timer: Option<Pin<Box<Sleep>>>,
}

impl BoundedBody {
    /// For a request whose head has arrived on `connection`.
    fn new(body: Incoming, connection: IdleSince, unfinished: &UnfinishedBytes) -> Self {
        if body.is_end_stream() {
            connection.request_arrived();
        } else {
            connection.becomes_idle();
        }
        Self { body, connection, received: 0, share: unfinished.hold_none(), timer: None }
    }
}

impl HttpBody for BoundedBody {
    type Data = Bytes;
    type Error = NoDecision;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, NoDecision>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(ARRIVES_WITHIN)));
            return timer.as_mut().poll(cx).map(|()| Some(Err(NoDecision::LATE)));
        };
        let frame = match frame {
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(unread(&error)))),
            None => {
                self.connection.request_arrived();
                return Poll::Ready(None);
            }
        };
        self.received += frame.data_ref().map_or(0, Bytes::len);
        let received = self.received;
        let is_held = self.share.grow_to(received);
        Poll::Ready(Some(if is_held { Ok(frame) } else { Err(NoDecision::MANY_BYTES) }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns why hyper cannot read the rest. Its errors about a body's encoding contain an I/O error of one of two kinds.
fn unread(error: &hyper::Error) -> NoDecision {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    match cause.map(io::Error::kind) {
        Some(ErrorKind::InvalidInput | ErrorKind::InvalidData) => {
            NoDecision::malformed("the chunks of the body are not as HTTP/1.1 requires")
        }
        _ => NoDecision::ABORTED,
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::post;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};
    use tokio::sync::Notify;
    use tokio::time::Instant;

    use super::*;
    use crate::http::connections::Activity;
    use crate::net::ConnectionBounds;
    use crate::net::socket::LINGER;
    use crate::telemetry::metrics::{Metrics, Port};

    /// Serves one connection without TLS. Returns its client, and a future that ends with the connection.
    async fn serve_one(router: Router, idle: IdleSince) -> (TcpStream, impl Future<Output = ()>) {
        let metrics = Metrics::new(800_000).expect("different names");
        let bounds = ConnectionBounds { total: 1, per_address: 1 };
        let http = HttpService {
            router,
            admission: Admission::new(Port::Http, bounds, metrics.connections(Port::Http)),
            tls: None,
            unfinished: UnfinishedBytes::new(1_024),
            finish_within: Duration::ZERO,
            failures: None,
            rights: Rights::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (client, (stream, peer)) = (client.expect("a connection"), accepted.expect("a connection"));
        let served = serve_client(PortStream::Left(stream), peer.ip(), http, idle, CancellationToken::new());
        (client, served)
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_never_ends_is_closed_a_second_after_its_last_answer() {
        let idle = IdleSince::now();
        let (mut client, served) = serve_one(Router::new(), idle.clone()).await;
        client.write_all(b"GET / HTTP/1.1\r\nno header\r\n\r\n").await.expect("open");
        let start = Instant::now();
        served.await;
        assert_eq!((start.elapsed(), idle.activity()), (LINGER, Activity::Lingers));
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("an answer, and the end");
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    }

    #[tokio::test]
    async fn a_connection_is_busy_from_the_last_byte_of_a_request_to_its_answer() {
        let (entered, answer) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (enter, may_answer) = (Arc::clone(&entered), Arc::clone(&answer));
        let handle = async move |_body: Bytes| {
            enter.notify_one();
            may_answer.notified().await;
        };
        let idle = IdleSince::now();
        let (mut client, served) = serve_one(Router::new().route("/", post(handle)), idle.clone()).await;

        let talk = async {
            let at_first = idle.activity();
            client
                .write_all(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{")
                .await
                .expect("open");
            while idle.activity() == at_first {
                tokio::task::yield_now().await;
            }
            assert!(idle.activity() < Activity::Busy, "half of the request is there");
            client.write_all(b"}").await.expect("open");
            entered.notified().await;
            assert_eq!(idle.activity(), Activity::Busy, "the request is whole and has no answer");
            answer.notify_one();
            let mut head = [0; 15];
            client.read_exact(&mut head).await.expect("an answer");
            assert_eq!(&head, b"HTTP/1.1 200 OK");
            assert!(idle.activity() < Activity::Busy, "the answer is written");
            drop(client);
        };
        tokio::join!(served, talk);
    }
}
