//! Callers at a fixed rate, on connections that stay open.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::RateLimitRequest;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

use super::rules::KEYS;

/// Connections, as Envoy has them.
const CONNECTIONS: usize = 4;
/// Different values of each key. All are used within the warm-up. Three quarters of the calls have one of the first
/// few, so that their limits deny.
const VALUES: u64 = 500;
const FREQUENT_VALUES: u64 = 8;
/// The most calls in flight, less than Envoy allows by default. Further calls are not made: a backlog of the callers
/// would be memory of the service.
const MOST_IN_FLIGHT: usize = 256;
/// Each of this many calls has two descriptors.
const PAIRS: u64 = 5;

/// The calls by their answer, and how long they took.
#[derive(Debug)]
pub struct Answers {
    ok: u64,
    over: u64,
    failed: u64,
    micros: Histogram<u64>,
    /// Not made, because too many were in flight.
    left_out: u64,
}

impl fmt::Display for Answers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ok, over, failed, micros, left_out } = self;
        write!(f, "{} calls: {ok} OK, {over} over limit, {failed} failed", ok + over + failed)?;
        write!(f, "; {left_out} not made, because {MOST_IN_FLIGHT} were in flight; ")?;
        let ms = |quantile| micros.value_at_quantile(quantile) as f64 / 1e3;
        write!(f, "p50 {:.2} ms, p99 {:.2} ms, p99.9 {:.2} ms", ms(0.5), ms(0.99), ms(0.999))
    }
}

/// Makes `rate` calls per second until `stop`.
pub fn call(port: u16, rate: u64, stop: &AtomicBool) -> Answers {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("a URL");
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            let channel = endpoint.connect().await.expect("the service listens");
            clients.push(RateLimitServiceClient::new(channel));
        }
        let micros = Histogram::new_with_max(60_000_000, 3).expect("a minute, three digits");
        let mut answers = Answers { ok: 0, over: 0, failed: 0, micros, left_out: 0 };
        let (started, mut calls) = (Instant::now(), JoinSet::new());
        for n in 0_u64.. {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            tokio::time::sleep_until((started + Duration::from_micros(n * 1_000_000 / rate)).into()).await;
            let client = clients[usize::try_from(n).expect("64 bits") % CONNECTIONS].clone();
            if calls.len() < MOST_IN_FLIGHT {
                calls.spawn(make_call(client, request(n)));
            } else {
                answers.left_out += 1;
            }
            while let Some(answer) = calls.try_join_next() {
                answers.count(answer.expect("no call panics"));
            }
        }
        while let Some(answer) = calls.join_next().await {
            answers.count(answer.expect("no call panics"));
        }
        answers
    })
}

/// The answer; `None` if the call failed.
type Answer = (Option<Code>, Duration);

async fn make_call(mut client: RateLimitServiceClient<Channel>, request: RateLimitRequest) -> Answer {
    let sent = Instant::now();
    let answer = client.should_rate_limit(request).await;
    (answer.ok().map(|answer| answer.get_ref().overall_code()), sent.elapsed())
}

impl Answers {
    fn count(&mut self, (answer, took): Answer) {
        self.micros.saturating_record(took.as_micros().try_into().expect("seconds"));
        match answer {
            Some(Code::OverLimit) => self.over += 1,
            Some(_) => self.ok += 1,
            None => self.failed += 1,
        }
    }
}

fn request(n: u64) -> RateLimitRequest {
    let descriptor = |n: u64| {
        let key = KEYS[usize::try_from(n % KEYS.len() as u64).expect("a small number")];
        let round = n / KEYS.len() as u64;
        let values = if round.is_multiple_of(4) { VALUES } else { FREQUENT_VALUES };
        let value = format!("v{}", round % values);
        let entry = Entry { key: key.to_owned(), value };
        RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }
    };
    let mut descriptors = vec![descriptor(n)];
    if n.is_multiple_of(PAIRS) {
        descriptors.push(descriptor(n + 1));
    }
    RateLimitRequest { domain: "soak".to_owned(), descriptors, ..RateLimitRequest::default() }
}
