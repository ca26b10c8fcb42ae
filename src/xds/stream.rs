//! One stream: sends the subscription, hands each answer to the sink, and acknowledges or refuses it.

use std::error::Error;
use std::future::{Future, ready};
use std::pin::{Pin, pin};
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};
use base::{escaped, on_blocking_thread};
use futures_util::StreamExt as _;
use futures_util::stream::{once, unfold};
use http::uri::PathAndQuery;
use prost_types::Any;
use rules::shortened;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::connect::with_causes;
use super::options::XdsOptions;
use super::pace::RefusalPace;
use super::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use super::resources::{Fingerprint, Resource, decode_all, fingerprint};
use super::state::{Refusal, XdsState};
use super::subscription::{Subscription, TYPE_URL};
use crate::telemetry::metrics::{XdsAnswer, XdsFailure, XdsMeter};

/// The method whose stream carries all resources.
const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// Between two answers that are read: each answer is a log line, and a server need not wait for requests.
const ANSWER_PAUSE: Duration = Duration::from_millis(100);

/// Maximum requests unread by the server. Each acknowledges a response: a server that leaves 16 unread is broken.
const MAX_UNREAD_REQUESTS: usize = 16;

/// Checks and applies resources. Called on a thread that may block.
pub trait ResourceSink: Send + 'static {
    /// Replaces all rules with the ones in `resources`.
    ///
    /// # Errors
    /// Why they are invalid, for the server: the current rules stay.
    fn replace(&mut self, resources: Vec<Resource>) -> Result<(), String>;

    /// The newest answer has the current rules.
    fn confirm(&mut self);

    /// The connection to the server was opened, or has ended because of `fault`.
    fn connection_changed(&self, fault: Option<&str>);
}

#[derive(Debug)]
pub(super) enum StreamEnd {
    /// The server ended it.
    Closed,
    Failed(Status),
    /// The server reads no requests.
    Unread,
    /// The caller ended it.
    Interrupted,
}

impl StreamEnd {
    pub fn failure(&self) -> XdsFailure {
        match self {
            // tonic's status for a message above the limit.
            Self::Failed(status) if status.code() == Code::OutOfRange => XdsFailure::TooLarge,
            _ => XdsFailure::Stream,
        }
    }

    pub fn reason(&self) -> String {
        match self {
            Self::Closed => "the server ended the stream".to_owned(),
            Self::Unread => "the server does not read requests".to_owned(),
            Self::Interrupted => "the stream was replaced".to_owned(),
            Self::Failed(status) => {
                let causes = status.source().map(|cause| format!(": {}", with_causes(cause)));
                let reason = format!("{:?}: {}", status.code(), status.message());
                format!("the stream failed: {}", escaped(reason + &causes.unwrap_or_default()))
            }
        }
    }
}

/// Both sides of a stream. The server can end its side when `requests` is dropped.
pub(super) struct OpenStream {
    pub requests: mpsc::Sender<DiscoveryRequest>,
    pub answers: Streaming<DiscoveryResponse>,
}

/// State that outlasts a stream.
#[derive(Debug)]
pub(super) struct Session<S> {
    subscription: Subscription,
    pace: RefusalPace,
    /// Absent while a thread works with it.
    applier: Option<Applier<S>>,
    headers: MetadataMap,
    max_message_bytes: usize,
    meter: XdsMeter,
    state: XdsState,
}

#[derive(Debug)]
struct Reply {
    request: DiscoveryRequest,
    due: Instant,
}

impl<S: ResourceSink> Session<S> {
    pub fn new(options: &XdsOptions, sink: S, meter: XdsMeter, state: XdsState) -> Self {
        Self {
            subscription: Subscription::new(&options.identity),
            pace: RefusalPace::default(),
            applier: Some(Applier { sink, in_force: None, refused: None }),
            headers: MetadataMap::from_headers(options.headers.clone()),
            max_message_bytes: options.max_message_bytes,
            meter,
            state,
        }
    }

    /// Tells the sink that the connection was opened or has ended. Call it between two streams, when no thread works
    /// with the sink.
    pub fn connection_changed(&self, fault: Option<&str>) {
        if let Some(applier) = &self.applier {
            applier.sink.connection_changed(fault);
        }
    }

    /// Exchanges requests and answers on `channel` until the stream ends or `interrupt`. Also returns the number of
    /// answers.
    pub async fn run(&mut self, channel: Channel, interrupt: impl Future<Output = ()>) -> (StreamEnd, u64) {
        let mut answers = 0;
        let end = self.run_stream(channel, pin!(interrupt), &mut answers).await;
        (end, answers)
    }

    /// `interrupt` never interrupts the work on an answer.
    async fn run_stream(
        &mut self,
        channel: Channel,
        mut interrupt: Pin<&mut impl Future<Output = ()>>,
        answers: &mut u64,
    ) -> StreamEnd {
        let opening = open(channel, self.subscription.first_request(), &self.headers, self.max_message_bytes);
        let opened = tokio::select! {
            opened = opening => opened,
            () = &mut interrupt => return StreamEnd::Interrupted,
        };
        let OpenStream { requests, answers: mut stream } = match opened {
            Ok(open) => open,
            Err(status) => return StreamEnd::Failed(status),
        };
        let mut pending: Option<Reply> = None;
        let mut next_answer = Instant::now();
        loop {
            let due = pending.as_ref().map_or_else(Instant::now, |reply| reply.due);
            tokio::select! {
                () = &mut interrupt => return StreamEnd::Interrupted,
                message = after(next_answer, stream.message()) => match message {
                    Ok(Some(answer)) => {
                        *answers += 1;
                        // Replaces a waiting refusal: the server waits for the newest nonce.
                        pending = Some(self.answer(answer).await);
                        next_answer = Instant::now() + ANSWER_PAUSE;
                    }
                    Ok(None) => return StreamEnd::Closed,
                    Err(status) => return StreamEnd::Failed(status),
                },
                () = sleep_until(due), if pending.is_some() => {
                    let Some(reply) = pending.take() else { continue };
                    if reply.request.error_detail.is_some() {
                        self.meter.nacks.inc();
                    }
                    if requests.try_send(reply.request).is_err() {
                        return StreamEnd::Unread;
                    }
                }
            }
        }
    }

    async fn answer(&mut self, answer: DiscoveryResponse) -> Reply {
        let DiscoveryResponse { version_info: version, resources, type_url, nonce } = answer;
        let now = Instant::now();
        let verdict = self.apply(type_url, resources).await;
        let now_us = SystemClock.now_us();
        match verdict {
            Verdict::Refused { reason, is_new } => {
                self.meter.answered(XdsAnswer::Refused, now_us);
                let due = self.pace.due(&version, now);
                let version = shortened(version);
                if is_new {
                    tracing::error!(version, error = %reason, "rejected xDS response; keeping current rules");
                }
                self.state.lock().refused = Some(Refusal { version, reason: reason.clone() });
                Reply { request: self.subscription.refuse(nonce, &reason), due }
            }
            accepted => {
                let is_new = matches!(accepted, Verdict::Accepted);
                let counted = if is_new { XdsAnswer::Accepted } else { XdsAnswer::Unchanged };
                self.meter.answered(counted, now_us);
                self.pace.reset();
                let request = self.subscription.accept(&version, nonce);
                let mut status = self.state.lock();
                (status.version, status.refused) = (Some(version), None);
                Reply { request, due: now }
            }
        }
    }

    async fn apply(&mut self, type_url: String, resources: Vec<Any>) -> Verdict {
        let mut applier = self.applier.take().expect("one answer at a time");
        let work = move || {
            let verdict = applier.apply(&type_url, resources);
            (applier, verdict)
        };
        let (applier, verdict) = on_blocking_thread(work).await;
        self.applier = Some(applier);
        verdict
    }
}

/// Runs `future` from `start` on.
async fn after<T>(start: Instant, future: impl Future<Output = T>) -> T {
    sleep_until(start).await;
    future.await
}

/// Opens a stream, and sends its first request. The server may open its side only with its first answer, which can take
/// days: only keep-alive limits the wait.
pub(super) async fn open(
    channel: Channel,
    first: DiscoveryRequest,
    headers: &MetadataMap,
    max_message_bytes: usize,
) -> Result<OpenStream, Status> {
    let (requests, queue) = mpsc::channel(MAX_UNREAD_REQUESTS);
    let further = unfold(queue, |mut queue| async { Some((queue.recv().await?, queue)) });
    let mut request = Request::new(once(ready(first)).chain(further));
    *request.metadata_mut() = headers.clone();
    let mut client = Grpc::new(channel).max_decoding_message_size(max_message_bytes);
    client
        .ready()
        .await
        .map_err(|error| Status::unavailable(format!("the connection has ended: {}", with_causes(&error))))?;
    let codec = ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
    let answers = client.streaming(request, PathAndQuery::from_static(METHOD), codec).await?.into_inner();
    Ok(OpenStream { requests, answers })
}

#[derive(Debug)]
enum Verdict {
    Accepted,
    Unchanged,
    /// `is_new`: `true` unless it was refused just before.
    Refused {
        reason: String,
        is_new: bool,
    },
}

/// Hands resources to the sink, unless it has them already: a server resends all of them when anything changes, and
/// after each refusal.
#[derive(Debug)]
struct Applier<S> {
    sink: S,
    in_force: Option<Fingerprint>,
    refused: Option<(Fingerprint, String)>,
}

impl<S: ResourceSink> Applier<S> {
    fn apply(&mut self, type_url: &str, resources: Vec<Any>) -> Verdict {
        let fingerprint = fingerprint(type_url, &resources);
        if self.in_force == Some(fingerprint) {
            if self.refused.take().is_some() {
                self.sink.confirm();
            }
            return Verdict::Unchanged;
        }
        if let Some((refused, reason)) = &self.refused
            && *refused == fingerprint
        {
            return Verdict::Refused { reason: reason.clone(), is_new: false };
        }
        let loaded = if type_url == TYPE_URL {
            self.sink.replace(decode_all(resources))
        } else {
            Err(format!("the answer is of type \"{}\"", shortened(escaped(type_url.to_owned()))))
        };
        match loaded {
            Ok(()) => {
                (self.in_force, self.refused) = (Some(fingerprint), None);
                Verdict::Accepted
            }
            Err(reason) => {
                self.refused = Some((fingerprint, reason.clone()));
                Verdict::Refused { reason, is_new: true }
            }
        }
    }
}
