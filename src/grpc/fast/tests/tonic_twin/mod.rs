//! Compares this server with tonic's own: the same callers see the same answers, except for the differences that the
//! tables list with their reasons. Messages of refusals are not compared: each server has its own.

mod calls;
mod crowds;
mod foreign;
mod raw_frames;

use base::clock::ManualClock;
use engine::{Charges, Defaults, DomainSpec, Outcomes, StoreError, ValueHashing};
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::io::DuplexStream;

use super::super::tests::*;
use crate::grpc::head::MAX_HEADER_LIST_BYTES;
use crate::grpc::tonic_server::{self, MAX_READ_HEADER_BYTES};

const PIPE_BYTES: usize = 1 << 20;
const WINDOW_BYTES: u32 = 1 << 20;
/// More calls at a time than any caller makes.
const MAX_OPEN_CALLS: usize = 2_000;
/// Mid-second.
const NOW_US: u64 = 1_000_500_000;
/// Longer than every time limit of a call.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the store does with a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deciding {
    Answers,
    Hangs,
    Panics,
}

struct TwinStore(Deciding, MemoryStore<ManualClock>);

impl Store for TwinStore {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        match self.0 {
            Deciding::Answers => self.1.decide(charges).await,
            Deciding::Hangs => std::future::pending().await,
            Deciding::Panics => panic!("as if by mistake"),
        }
    }
}

fn twin_handler(deciding: Deciding, metrics: &Metrics) -> Handler<TwinStore> {
    let domain = DomainSpec { domain: "d".to_owned(), ..DomainSpec::default() };
    let rules = RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE);
    let store = TwinStore(deciding, MemoryStore::new(MemoryOptions::default(), ManualClock::at(NOW_US)));
    handler(rules.expect("valid rules"), store, metrics)
}

#[derive(Clone, Copy, Debug)]
enum Twin {
    Ours,
    Tonic,
}

impl Twin {
    /// Serves one connection, and returns the client's end.
    fn connect(self, deciding: Deciding) -> DuplexStream {
        self.connect_bounded(deciding, MAX_OPEN_CALLS)
    }

    /// `max_open`: bound on open calls in the fast server.
    fn connect_bounded(self, deciding: Deciding, max_open: usize) -> DuplexStream {
        let metrics = Metrics::new(800_000).expect("different names");
        let handler = twin_handler(deciding, &metrics);
        let (client, theirs) = tokio::io::duplex(PIPE_BYTES);
        match self {
            Self::Ours => {
                let server = server_of(handler, max_open, &CancellationToken::new());
                spawn(server.serve(theirs, placement(), admitted_place()));
            }
            Self::Tonic => {
                let connections = stream::iter([Ok(theirs)]).chain(stream::pending());
                let others = other_services(
                    Readiness::not_ready(&[]),
                    handler.meter.clone(),
                    CancellationToken::new(),
                );
                let others = others.expect("valid services");
                spawn(tonic_server::serve(handler, others, options(), connections, CancellationToken::new()));
            }
        }
        client
    }
}

/// An HTTP/2 client, with this window for each answer.
async fn client_of(pipe: DuplexStream, window: u32) -> SendRequest<Bytes> {
    let mut builder = h2::client::Builder::new();
    // The connection window bounds how many small answers h2's client holds unread.
    builder.initial_window_size(window).initial_connection_window_size(WINDOW_BYTES);
    let builder = builder.initial_max_send_streams(MAX_OPEN_CALLS);
    let (client, connection) = builder.handshake(pipe).await.expect("HTTP/2");
    spawn(async { drop(connection.await) });
    client
}

/// A request with a limit of its own, so that the store is called.
fn charged_request() -> Bytes {
    framed(0, b"\x0a\x01d\x12\x0e\x0a\x06\x0a\x01k\x12\x01v\x12\x04\x08\x05\x10\x01")
}

/// What a caller sees of an answer: HTTP status and content type; then the message and the gRPC status; then an early
/// end.
async fn outcome(response: h2::client::ResponseFuture) -> String {
    let seen = async {
        let (head, mut body) = match response.await {
            Ok(response) => response.into_parts(),
            Err(error) => return format!("no answer: {:?}", error.reason()),
        };
        let field = |headers: &HeaderMap, name: &str| {
            headers.get(name).map_or("-".to_owned(), |value| value.to_str().expect("text").to_owned())
        };
        let mut seen = format!("{} {}", head.status.as_u16(), field(&head.headers, "content-type"));
        for name in ["grpc-accept-encoding", "content-length"] {
            if head.headers.contains_key(name) {
                seen += &format!(", {name} {}", field(&head.headers, name));
            }
        }
        let mut message = Vec::new();
        while let Some(data) = body.data().await {
            match data {
                Ok(data) => {
                    body.flow_control().release_capacity(data.len()).expect("received bytes");
                    message.extend_from_slice(&data);
                }
                Err(error) => return format!("{seen}, then {:?}", error.reason()),
            }
        }
        if !message.is_empty() {
            seen +=
                &format!(", {} bytes {:02x}", message.len(), message.iter().fold(0, |sum, byte| sum ^ byte));
        }
        match body.trailers().await {
            Ok(Some(trailers)) => format!("{seen}, trailers {}", field(&trailers, "grpc-status")),
            Ok(None) => format!("{seen}, headers {}", field(&head.headers, "grpc-status")),
            Err(error) => format!("{seen}, then {:?}", error.reason()),
        }
    };
    tokio::time::timeout(PATIENCE, seen).await.unwrap_or_else(|_| "nothing".to_owned())
}

/// What callers see of both servers: the same, or a difference with its reason.
struct Seen {
    ours: &'static str,
    /// What tonic's server does instead, and why the fast one does not.
    of_tonic: Option<(&'static str, &'static str)>,
}

const fn both(seen: &'static str) -> Seen {
    Seen { ours: seen, of_tonic: None }
}

const fn differs(ours: &'static str, tonic: &'static str, reason: &'static str) -> Seen {
    Seen { ours, of_tonic: Some((tonic, reason)) }
}

impl Seen {
    /// Compares what a caller saw with the table. Returns it, or `None` if both are equal.
    fn mismatch(&self, name: &str, ours: &str, tonic: &str) -> Option<String> {
        let (expected, reason) = self.of_tonic.unwrap_or((self.ours, "the same"));
        assert!(self.of_tonic.is_none() || expected != self.ours, "{name}: no difference");
        let is_seen = (ours, tonic) == (self.ours, expected);
        (!is_seen).then(|| format!("{name} ({reason}):\n  ours  {ours}\n  tonic {tonic}"))
    }
}

fn report(mismatches: &[String]) {
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
}
