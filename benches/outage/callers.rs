//! Callers at a fixed rate. They record the outcome, the source and the latency of each answer.

use std::time::{Duration, Instant};

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_response::Code;
use envoy_types::pb::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use envoy_types::pb::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

const POLICIES: [&str; 4] = ["allow", "deny", "local", "error"];

/// The outcome of a call, and its source: Redis or a failure policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    OverLimit,
    Allow,
    Deny,
    Local,
    Error,
}

impl Outcome {
    pub const ALL: [Self; 6] = [Self::Ok, Self::OverLimit, Self::Allow, Self::Deny, Self::Local, Self::Error];

    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "OK by Redis",
            Self::OverLimit => "OVER by Redis",
            Self::Allow => "policy allow",
            Self::Deny => "policy deny",
            Self::Local => "policy local",
            Self::Error => "policy error",
        }
    }

    /// The outcome of a call of the limit whose policy is `policy`.
    fn from_answer(answer: Result<RateLimitResponse, tonic::Status>, policy: &str) -> Self {
        let Ok(answer) = answer else { return Self::Error };
        let by_policy = answer
            .dynamic_metadata
            .as_ref()
            .is_some_and(|metadata| metadata.fields.contains_key("on_store_failure"));
        match (by_policy, policy) {
            (true, "allow") => Self::Allow,
            (true, "deny") => Self::Deny,
            (true, _) => Self::Local,
            (false, _) if answer.overall_code() == Code::OverLimit => Self::OverLimit,
            (false, _) => Self::Ok,
        }
    }
}

/// One call.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// Due time of the call, since the start of the run.
    pub due: Duration,
    pub latency: Duration,
    pub outcome: Outcome,
}

/// Makes `rate` calls per second, whether or not earlier calls are answered.
pub fn call(port: u16, rate: u64, duration_ms: u64) -> Vec<Answer> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("a URL");
        let client = RateLimitServiceClient::new(endpoint.connect().await.expect("the service listens"));
        let started = Instant::now();
        let mut calls = JoinSet::new();
        let mut answers = Vec::new();
        for n in 0..rate * duration_ms / 1_000 {
            let due = Duration::from_micros(n * 1_000_000 / rate);
            tokio::time::sleep_until((started + due).into()).await;
            let policy = POLICIES[usize::try_from(n % 4).expect("below four")];
            calls.spawn(make_call(client.clone(), policy, due));
            while let Some(answer) = calls.try_join_next() {
                answers.push(answer.expect("no call panics"));
            }
        }
        while let Some(answer) = calls.join_next().await {
            answers.push(answer.expect("no call panics"));
        }
        answers
    })
}

async fn make_call(
    mut client: RateLimitServiceClient<Channel>,
    policy: &'static str,
    due: Duration,
) -> Answer {
    let entry = Entry { key: policy.to_owned(), value: "x".to_owned() };
    let descriptor = RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() };
    let request = RateLimitRequest {
        domain: "outage".to_owned(),
        descriptors: vec![descriptor],
        ..RateLimitRequest::default()
    };
    // Measured from here, not from the due time: the resolution of the timer is longer than a call.
    let sent = Instant::now();
    let answer = client.should_rate_limit(request).await.map(tonic::Response::into_inner);
    Answer { due, latency: sent.elapsed(), outcome: Outcome::from_answer(answer, policy) }
}
