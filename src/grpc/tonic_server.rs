//! Serves a worker's connections with tonic's own server, which is hyper's: `server.grpc.fast: false`.
//!
//! Acceptor, TLS, workers, shutdown and the bounds below are shared with the fast path. Connections stay on their
//! worker. [Decision 20](../../docs/decisions/0020-own-grpc-server-on-h2.md) lists what `fast` does in addition.

use std::convert::Infallible;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use engine::{Caller, Store};
use futures_util::stream::{Stream, unfold};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc::Receiver;
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tower::layer::layer_fn;

use super::head::CALL_TIMEOUT;
use super::pb::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitServiceServer;
use super::pb::kuadrant::service::ratelimit::v1::rate_limit_service_server::RateLimitServiceServer as KuadrantServiceServer;
use super::service::DecisionService;
use super::tonic_refusals::TonicRefusals;
use super::worker::{GrpcOptions, Seat};
use super::worker_link::{AcceptedConnection, AcceptedStream, Arriving, CountedConnection};
use crate::decide::{CertificateRights, Handler, Rights};
use crate::net::admission::Admitted;
use crate::net::socket::{ClientSocket, TlsSession, client_certificate};

/// Envoy opens one connection per worker thread, with up to 1,024 concurrent calls on each.
pub(super) const MAX_CONCURRENT_STREAMS: u32 = 1_024;
/// Window of a stream and of a connection: large enough that no client has to wait for it, and that no message needs a
/// WINDOW_UPDATE.
pub(super) const WINDOW_BYTES: u32 = 1024 * 1024;
/// Longest header list that h2 reads, as h2 counts it: far above what a call can have. A call between the two bounds is
/// refused, counted and answered like other invalid calls. h2 itself answers a longer list with 431, and does not pass
/// it to this service.
pub(super) const MAX_READ_HEADER_BYTES: u32 = 1024 * 1024;
/// Interval without a call, plus at most a third, after which the server sends a PING. It closes the connection if no
/// answer comes in time.
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
pub(super) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves a worker's connections until shutdown, then finishes the calls in flight.
pub(super) async fn serve_connections<S: Store + 'static>(handler: Handler<S>, seat: Seat) {
    let connections = connections(seat.inbox.arriving, handler.rights.clone());
    serve(handler, seat.others, seat.options, connections, seat.stop).await;
}

/// Serves `connections` with the decision and the `others`.
pub(super) async fn serve<S, C>(
    handler: Handler<S>,
    others: Routes,
    options: GrpcOptions,
    connections: impl Stream<Item = Result<C, Infallible>>,
    stop: CancellationToken,
) where
    S: Store + 'static,
    C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
{
    let handler = Arc::new(handler);
    let service = || DecisionService(Arc::clone(&handler));
    let max_bytes = handler.max_message_bytes;
    let decisions = RateLimitServiceServer::new(service()).max_decoding_message_size(max_bytes);
    let kuadrant = KuadrantServiceServer::new(service()).max_decoding_message_size(max_bytes);
    let mut server = Server::builder()
        .timeout(CALL_TIMEOUT)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
        .http2_max_header_list_size(MAX_READ_HEADER_BYTES)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT));
    if let Some(age) = options.max_connection_age {
        // Without `max_connection_age_grace`, which would make tonic close the connection without GOAWAY.
        server = server.max_connection_age(age);
    }
    let served = server
        .layer(layer_fn(move |next| TonicRefusals { handler: Arc::clone(&handler), next }))
        .add_routes(others.add_service(decisions).add_service(kuadrant))
        .serve_with_incoming_shutdown(connections, stop.cancelled());
    let too_long = async {
        stop.cancelled().await;
        tokio::time::sleep(options.finish_within).await;
    };
    tokio::select! {
        ended = served => {
            if let Err(error) = ended {
                tracing::error!(%error, "tonic server ended");
            }
        }
        () = too_long => tracing::warn!(
            waited = ?options.finish_within,
            "connections still open at shutdown; closing them"
        ),
    }
}

/// The connections of the worker, numbered.
fn connections(
    arriving: Receiver<Arriving>,
    rights: Rights,
) -> impl Stream<Item = Result<TonicConnection, Infallible>> {
    unfold((arriving, rights, 0), async |(mut arriving, rights, number)| {
        loop {
            // Only connections of the fast path move between workers.
            if let Arriving::New(AcceptedConnection { stream, admitted, counted }) = arriving.recv().await? {
                let (stream, certificate) = match stream {
                    AcceptedStream::Clear(socket) => (Either::Left(socket), None),
                    AcceptedStream::Tls(session) => {
                        let certificate = client_certificate(&session);
                        (Either::Right(session), certificate)
                    }
                };
                let connection = TonicConnection {
                    stream,
                    client: Client {
                        caller: Caller(number),
                        certificate: rights.of_certificate(certificate.as_ref()),
                    },
                    _admitted: admitted,
                    _counted: counted,
                };
                return Some((Ok(connection), (arriving, rights, number.wrapping_add(1))));
            }
        }
    })
}

/// A connection of tonic's server, counted by its port and its worker while it is open.
struct TonicConnection {
    stream: Either<ClientSocket, TlsSession>,
    client: Client,
    _admitted: Admitted,
    _counted: CountedConnection,
}

/// Whose calls a connection has.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Client {
    /// The connection, among which the store shares its time.
    pub(super) caller: Caller,
    pub(super) certificate: CertificateRights,
}

/// tonic adds it to each request's extensions.
impl Connected for TonicConnection {
    type ConnectInfo = Client;

    fn connect_info(&self) -> Client {
        self.client
    }
}

impl AsyncRead for TonicConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for TonicConnection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
