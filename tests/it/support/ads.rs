//! A server of the aggregated discovery service, state of the world: a cache of one snapshot, as go-control-plane has.
//!
//! It answers a request at once if the request names another version than the snapshot, and else when the snapshot
//! changes. So it sends a refused snapshot again as soon as it is refused. Its messages come from the crate
//! `envoy-types`, and not from the protobuf files of this project.
#![expect(
    clippy::disallowed_methods,
    reason = "the server serves until the test ends, and times requests on the real clock"
)]

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_server::{
    AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use envoy_types::pb::google::protobuf::Any;
use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataMap;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::cut_stream::CutStream;
use super::{ports, wait};

pub const TYPE_URL: &str = "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// What the server has.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub version: String,
    /// The type that the answer names; the resources name their own.
    pub type_url: String,
    pub resources: Vec<Any>,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Received {
    pub at: Instant,
    /// The number of its stream, from 0.
    pub stream: usize,
    pub request: DiscoveryRequest,
}

/// A server on a port of this machine. It ends when it is dropped.
pub struct AdsServer {
    port: u16,
    shared: Arc<Shared>,
    listening: Option<Listening>,
}

struct Listening {
    cut: CancellationToken,
    /// Owns the port. It ends when `cut` is cancelled.
    accepting: JoinHandle<Option<()>>,
    serving: JoinHandle<()>,
}

struct Shared {
    snapshot: watch::Sender<Option<Snapshot>>,
    received: Mutex<Vec<Received>>,
    /// The metadata of each stream.
    streams: Mutex<Vec<MetadataMap>>,
    answers: AtomicUsize,
    /// For new connections.
    tls: Mutex<Option<TlsAcceptor>>,
    /// The certificate of the client of each connection by TLS.
    clients: Mutex<Vec<Vec<u8>>>,
}

impl AdsServer {
    /// A server that does not listen yet.
    pub fn new() -> Self {
        let shared = Shared {
            snapshot: watch::Sender::new(None),
            received: Mutex::default(),
            streams: Mutex::default(),
            answers: AtomicUsize::new(0),
            tls: Mutex::default(),
            clients: Mutex::default(),
        };
        Self { port: ports::free(), shared: Arc::new(shared), listening: None }
    }

    /// A server that listens, without a snapshot.
    pub async fn start() -> Self {
        let mut server = Self::new();
        server.listen().await;
        server
    }

    /// `host:port`
    pub fn address(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// Handshakes of new connections use this; `None` is clear text.
    pub fn set_tls(&self, acceptor: Option<TlsAcceptor>) {
        *self.shared.tls.lock().expect("not poisoned") = acceptor;
    }

    pub fn set(&self, version: &str, resources: Vec<Any>) {
        self.set_of_type(version, TYPE_URL, resources);
    }

    pub fn set_of_type(&self, version: &str, type_url: &str, resources: Vec<Any>) {
        let (version, type_url) = (version.to_owned(), type_url.to_owned());
        self.shared.snapshot.send_replace(Some(Snapshot { version, type_url, resources }));
    }

    /// Starts to listen on its port.
    pub async fn listen(&mut self) {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let listener = TcpListener::bind(address).await.expect("a free port");
        let cut = CancellationToken::new();
        let (ready, connections) = mpsc::channel(16);
        let accepting = tokio::spawn(cut.clone().run_until_cancelled_owned(accept(
            listener,
            Arc::clone(&self.shared),
            cut.clone(),
            ready,
        )));
        let incoming =
            unfold(connections, |mut connections| async { Some((connections.recv().await?, connections)) });
        let service = AggregatedDiscoveryServiceServer::new(Ads { shared: Arc::clone(&self.shared) })
            .max_encoding_message_size(usize::MAX);
        let serving = Server::builder().add_service(service).serve_with_incoming(incoming);
        let serving = tokio::spawn(async move { serving.await.expect("the server runs") });
        self.listening = Some(Listening { cut, accepting, serving });
    }

    /// Stops to listen, and cuts all connections.
    pub async fn stop(&mut self) {
        let Some(listening) = self.listening.take() else { return };
        listening.cut.cancel();
        listening.serving.abort();
        // An aborted task is an error.
        let _ = listening.serving.await;
        // The port is free after it.
        listening.accepting.await.expect("no panic");
    }

    pub fn received(&self) -> Vec<Received> {
        self.shared.received.lock().expect("not poisoned").clone()
    }

    /// The number of answers sent.
    pub fn answers(&self) -> usize {
        self.shared.answers.load(Ordering::Relaxed)
    }

    pub fn streams(&self) -> Vec<MetadataMap> {
        self.shared.streams.lock().expect("not poisoned").clone()
    }

    /// The certificates that clients have shown, in DER, one for each connection.
    pub fn clients(&self) -> Vec<Vec<u8>> {
        self.shared.clients.lock().expect("not poisoned").clone()
    }

    /// Waits for a request after the first `skipped` ones that fulfils `wanted`.
    pub async fn expect(
        &self,
        what: &str,
        skipped: usize,
        wanted: impl Fn(&DiscoveryRequest) -> bool,
    ) -> Received {
        let found = wait::until_async(wait::PATIENCE, async || {
            self.received().into_iter().skip(skipped).find(|received| wanted(&received.request))
        });
        let found = found.await;
        found.unwrap_or_else(|| panic!("no {what} among {:#?}", self.received()[skipped..].to_vec()))
    }

    /// Waits until the client has acknowledged `version`.
    pub async fn expect_ack(&self, version: &str) -> Received {
        let is_ack = |request: &DiscoveryRequest| {
            request.version_info == version
                && !request.response_nonce.is_empty()
                && request.error_detail.is_none()
        };
        self.expect(&format!("acknowledgement of {version}"), 0, is_ack).await
    }
}

impl Drop for AdsServer {
    fn drop(&mut self) {
        if let Some(listening) = &self.listening {
            listening.cut.cancel();
            listening.serving.abort();
        }
    }
}

/// Sends the connections of `listener` whose handshake succeeds.
async fn accept(
    listener: TcpListener,
    shared: Arc<Shared>,
    cut: CancellationToken,
    ready: mpsc::Sender<std::io::Result<CutStream>>,
) {
    while let Ok((stream, _)) = listener.accept().await {
        let (shared, ready, cut) = (Arc::clone(&shared), ready.clone(), cut.clone());
        tokio::spawn(async move {
            if let Some(stream) = handshake(stream, &shared).await {
                // The server may have stopped.
                let _ = ready.send(Ok(CutStream::new(stream, cut))).await;
            }
        });
    }
}

type Bytes = Box<dyn super::cut_stream::ByteStream>;

async fn handshake(stream: TcpStream, shared: &Shared) -> Option<Bytes> {
    let acceptor = shared.tls.lock().expect("not poisoned").clone();
    let Some(acceptor) = acceptor else { return Some(Box::new(stream)) };
    let accepted = acceptor.accept(stream).into_fallible();
    let stream = match tokio::time::timeout(Duration::from_secs(5), accepted).await.ok()? {
        Ok(stream) => stream,
        Err((_, mut refused)) => {
            // A socket that is closed with unread bytes is reset, and its client loses the alert.
            let _ = tokio::io::copy(&mut refused, &mut tokio::io::sink()).await;
            return None;
        }
    };
    let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let first = certificates.first().map(|certificate| certificate.to_vec()).unwrap_or_default();
    shared.clients.lock().expect("not poisoned").push(first);
    Some(Box::new(stream))
}

struct Ads {
    shared: Arc<Shared>,
}

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AggregatedDiscoveryService for Ads {
    type StreamAggregatedResourcesStream = Answers<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = Answers<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let number = {
            let mut streams = self.shared.streams.lock().expect("not poisoned");
            streams.push(request.metadata().clone());
            streams.len() - 1
        };
        let (answers, sent) = mpsc::channel(16);
        let shared = Arc::clone(&self.shared);
        tokio::spawn(async move { serve(shared, number, request.into_inner(), answers).await });
        let sent = unfold(sent, |mut sent| async { Some((sent.recv().await?, sent)) });
        Ok(Response::new(Box::pin(sent)))
    }

    async fn delta_aggregated_resources(
        &self,
        _request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Err(Status::unimplemented("state of the world only"))
    }
}

/// One stream.
async fn serve(
    shared: Arc<Shared>,
    stream: usize,
    mut requests: Streaming<DiscoveryRequest>,
    answers: mpsc::Sender<Result<DiscoveryResponse, Status>>,
) {
    let mut changes = shared.snapshot.subscribe();
    // The version of the request that waits for an answer.
    let mut waiting: Option<String> = None;
    let mut nonce = 0;
    loop {
        let snapshot = changes.borrow_and_update().clone();
        if let (Some(snapshot), Some(version)) = (snapshot, &waiting)
            && *version != snapshot.version
        {
            nonce += 1;
            let answer = DiscoveryResponse {
                version_info: snapshot.version,
                resources: snapshot.resources,
                type_url: snapshot.type_url,
                nonce: nonce.to_string(),
                ..DiscoveryResponse::default()
            };
            shared.answers.fetch_add(1, Ordering::Relaxed);
            waiting = None;
            if answers.send(Ok(answer)).await.is_err() {
                return;
            }
        }
        tokio::select! {
            changed = changes.changed() => {
                if changed.is_err() {
                    return;
                }
            }
            message = requests.message() => {
                let Ok(Some(request)) = message else { return };
                // An answer to an older answer says nothing of the newest one.
                if request.response_nonce.is_empty() || request.response_nonce == nonce.to_string() {
                    waiting = Some(request.version_info.clone());
                }
                let received = Received { at: Instant::now(), stream, request };
                shared.received.lock().expect("not poisoned").push(received);
            }
        }
    }
}
