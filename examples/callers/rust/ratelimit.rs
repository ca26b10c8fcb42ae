//! Asks ratelimitd over gRPC, with the messages of the crate `envoy-types`.

use std::error::Error as _;
use std::iter::successors;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code as Overall;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use envoy_types::pb::google::protobuf::UInt64Value;
use envoy_types::pb::google::protobuf::value::Kind;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::transport::{Channel, Endpoint, Error};
use tonic::{Code, ConnectError, Status};

/// When ratelimitd does not answer at all, [`OnFailure`] answers at once for this time, and nothing is sent. Within
/// this time at most one line is logged.
const AWAY: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Keys and values of a descriptor.
pub type Entries<'a> = &'a [(&'a str, &'a str)];

/// What to do without a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum OnFailure {
    /// Go on (fail open)
    Allow,
    /// Do not go on (fail closed)
    Deny,
}

pub struct Answer {
    pub admitted: bool,
    /// Before the work if it is admitted, else before the next try.
    pub wait: Duration,
    /// False: ratelimitd gave no decision, and this is the answer of [`OnFailure`].
    pub decided: bool,
    /// What [`RateLimit::settle`] returns, from a limit with `settle: true`.
    pub receipt: String,
}

/// A client of the gRPC port. Clones share one connection.
#[derive(Clone)]
pub struct RateLimit {
    client: RateLimitServiceClient<Channel>,
    on_failure: OnFailure,
    deadline: Duration,
    outage: Arc<Mutex<Outage>>,
}

#[derive(Default)]
struct Outage {
    away_until: Option<Instant>,
    log_again: Option<Instant>,
}

impl RateLimit {
    /// `address` is a host and a port. The connection is made when it is first needed, and again after it broke.
    /// `deadline` is for one decision, with all its tries.
    pub fn new(address: &str, on_failure: OnFailure, deadline: Duration) -> Result<Self, Error> {
        let channel = Endpoint::from_shared(format!("http://{address}"))?.connect_lazy();
        let client = RateLimitServiceClient::new(channel);
        Ok(Self { client, on_failure, deadline, outage: Arc::default() })
    }

    /// Asks for hits, and again until the deadline. Without a decision [`OnFailure`] answers.
    ///
    /// A try whose answer was lost may have been counted. Then the limit admits less, never more.
    pub async fn ask(&self, domain: &str, entries: Entries<'_>, hits: u64) -> Answer {
        if self.outage().away_until.is_some_and(|end| Instant::now() < end) {
            return self.undecided();
        }
        let may_change = |error: &Status| got_no_answer(error) || error.code() == Code::Unavailable;
        match self.call(request(domain, entries, hits), may_change).await {
            Ok(answer) => decision(&answer),
            Err(error) => {
                self.record(&error);
                self.undecided()
            }
        }
    }

    /// Books the real cost of what `ask` admitted with the same entries. After an error the estimate stays.
    ///
    /// A settle that arrives twice is booked twice. So it is tried again only while there is no connection.
    pub async fn settle(
        &self,
        domain: &str,
        entries: Entries<'_>,
        receipt: &str,
        hits: u64,
    ) -> Result<(), Status> {
        let settled = [entries, &[("ratelimitd_receipt", receipt)]].concat();
        self.call(request(domain, &settled, hits), is_unsent).await.map(drop)
    }

    /// Returns when the work may begin, with the number of denials before.
    pub async fn wait(&self, domain: &str, entries: Entries<'_>) -> u32 {
        let mut denied = 0;
        loop {
            let answer = self.ask(domain, entries, 1).await;
            sleep(answer.wait).await;
            if answer.admitted {
                return denied;
            }
            denied += 1;
        }
    }

    /// Reports the `Retry-After` of a third party: until then no caller is admitted by a limit with `feedback`. Returns
    /// how long to sleep before the next `wait`: without a decision you wait alone.
    pub async fn pause(&self, domain: &str, entries: Entries<'_>, retry_after: &str) -> Duration {
        let report = [entries, &[("ratelimitd_pause", retry_after)]].concat();
        if self.ask(domain, &report, 1).await.decided {
            return Duration::ZERO;
        }
        retry_after.parse().map_or(AWAY, Duration::from_secs)
    }

    async fn call(
        &self,
        request: RateLimitRequest,
        may_change: impl Fn(&Status) -> bool,
    ) -> Result<RateLimitResponse, Status> {
        let end = Instant::now() + self.deadline;
        let mut pause = FIRST_PAUSE;
        loop {
            // Half of the deadline at most, so that a second try has time.
            let end_of_try = end.min(Instant::now() + self.deadline / 2);
            let mut client = self.client.clone();
            let error = match timeout_at(end_of_try, client.should_rate_limit(request.clone())).await {
                Ok(Ok(answer)) => return Ok(answer.into_inner()),
                Ok(Err(error)) => error,
                Err(elapsed) => Status::from_error(elapsed.into()),
            };
            if !may_change(&error) || Instant::now() + pause >= end {
                return Err(error);
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    fn undecided(&self) -> Answer {
        let admitted = self.on_failure == OnFailure::Allow;
        let wait = if admitted { Duration::ZERO } else { AWAY };
        Answer { admitted, wait, decided: false, receipt: String::new() }
    }

    fn record(&self, error: &Status) {
        let now = Instant::now();
        let mut outage = self.outage();
        if got_no_answer(error) {
            outage.away_until = Some(now + AWAY);
        }
        if outage.log_again.is_none_or(|end| now >= end) {
            outage.log_again = Some(now + AWAY);
            eprintln!("no decision, on failure {:?}: {}", self.on_failure, error.message());
        }
    }

    fn outage(&self) -> std::sync::MutexGuard<'_, Outage> {
        self.outage.lock().expect("no code panics while it holds this lock")
    }
}

/// Errors that ratelimitd answers have no source.
fn got_no_answer(error: &Status) -> bool {
    error.source().is_some()
}

fn is_unsent(error: &Status) -> bool {
    successors(error.source(), |&cause| cause.source()).any(|cause| cause.is::<ConnectError>())
}

fn request(domain: &str, entries: Entries<'_>, hits: u64) -> RateLimitRequest {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    let descriptor = RateLimitDescriptor {
        entries: entries.iter().map(entry).collect(),
        hits_addend: Some(UInt64Value { value: hits }),
        ..Default::default()
    };
    RateLimitRequest { domain: domain.to_owned(), descriptors: vec![descriptor], ..Default::default() }
}

fn decision(answer: &RateLimitResponse) -> Answer {
    if answer.overall_code() == Overall::OverLimit {
        // Without `response.dynamic_metadata`, and for a cost that never fits, there is no time.
        let wait = milliseconds(answer, "retry_after_ms").unwrap_or(AWAY);
        return Answer { admitted: false, wait, decided: true, receipt: String::new() };
    }
    // The delay is that of a queue (`mode: queue`); no other limit sends one.
    let wait = milliseconds(answer, "delay_ms").unwrap_or_default();
    let receipt = match field(answer, "receipt") {
        Some(Kind::StringValue(text)) => text.clone(),
        _ => String::new(),
    };
    Answer { admitted: true, wait, decided: true, receipt }
}

fn field<'a>(answer: &'a RateLimitResponse, name: &str) -> Option<&'a Kind> {
    answer.dynamic_metadata.as_ref()?.fields.get(name)?.kind.as_ref()
}

fn milliseconds(answer: &RateLimitResponse, name: &str) -> Option<Duration> {
    let Kind::NumberValue(milliseconds) = field(answer, name)? else { return None };
    Duration::try_from_secs_f64(milliseconds / 1000.0).ok()
}
