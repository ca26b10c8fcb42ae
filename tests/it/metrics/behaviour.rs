//! Plays a recorded behaviour.

use std::collections::BTreeMap;

use envoy_types::pb::google::protobuf::UInt64Value;
use reqwest::Client;
use serde::Deserialize;
use serde_json::json;
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use super::exposition::Exposition;
use crate::support::grpc::{RateLimitDescriptor, Rls, descriptor, request};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::wait;

const RECORDED: &str = include_str!("../../data/metrics/behaviours.json");

/// Values by name, with labels or tags.
pub type Values = BTreeMap<String, u64>;

#[derive(Clone, Debug, Deserialize)]
pub struct Behaviour {
    pub name: String,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    rules: BTreeMap<String, String>,
    steps: Vec<Step>,
    /// The kind of each family.
    #[serde(default)]
    pub types: BTreeMap<String, String>,
    #[serde(default)]
    pub prometheus: Values,
    #[serde(default)]
    pub statsd: Values,
    #[serde(default)]
    pub dogstatsd: Values,
}

#[derive(Clone, Debug, Deserialize)]
struct Step {
    #[serde(rename = "do")]
    action: Option<String>,
    file: Option<String>,
    text: Option<String>,
    #[serde(default)]
    domain: String,
    #[serde(default)]
    descriptors: Vec<RecordedDescriptor>,
    #[serde(default)]
    hits_addend: u32,
    #[serde(default = "once")]
    times: usize,
    door: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct RecordedDescriptor {
    entries: Vec<(String, String)>,
    hits_addend: Option<u64>,
    limit: Option<(u32, String)>,
}

fn once() -> usize {
    1
}

impl Behaviour {
    pub fn all() -> Vec<Self> {
        serde_json::from_str(RECORDED).expect("recorded behaviours")
    }

    /// The process that plays it: the settings that say the same as the environment.
    pub fn plan(&self, redis: Option<&Redis>) -> Plan {
        let mut plan =
            self.rules.iter().fold(Plan::default(), |plan, (name, text)| plan.rule_file(name, text));
        if let Some(redis) = redis {
            let has_cache = self.environment.contains_key("LOCAL_CACHE_SIZE_IN_BYTES");
            plan = plan
                .redis(&redis.url())
                .set("store.redis.deny_cache.enabled", has_cache)
                .set("store.redis.deny_cache.max_age", "60s");
        }
        self.environment.iter().fold(plan, |plan, (name, value)| match name.as_str() {
            "SHADOW_MODE" => plan.set("shadow_mode", true),
            "NEAR_LIMIT_RATIO" => plan.set("near_limit_ratio", value.as_str()),
            "EXTRA_TAGS" => plan.set("metrics.extra_tags", value.as_str()),
            "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS" => plan.set("metrics.response_time", "milliseconds"),
            _ => plan,
        })
    }

    /// Whether it shows something of Redis.
    pub fn needs_redis(&self) -> bool {
        let kills = self.steps.iter().any(|step| step.action.as_deref() == Some("kill redis"));
        kills
            || ["LOCAL_CACHE_SIZE_IN_BYTES", "REDIS_PERSECOND"]
                .iter()
                .any(|name| self.environment.contains_key(*name))
    }

    pub async fn play(&self, service: &Ratelimitd, redis: &mut Option<Redis>) {
        let mut rls = Rls::connect(service.grpc_port()).await;
        for step in &self.steps {
            match step.action.as_deref() {
                None => step.call(&mut rls, service).await,
                Some("kill redis") => redis.as_mut().expect("it is played on Redis").stop(),
                Some("write") => step.write(service),
                Some("health") => check_health(service).await,
                Some(action) => panic!("{}: {action} is not known", self.name),
            }
        }
    }
}

impl Step {
    async fn call(&self, rls: &mut Rls, service: &Ratelimitd) {
        for _ in 0..self.times {
            if self.door.as_deref() == Some("json") {
                self.post(service).await;
            } else {
                let descriptors = self.descriptors.iter().map(RecordedDescriptor::message).collect();
                let mut request = request(&self.domain, descriptors);
                request.hits_addend = self.hits_addend;
                // Some calls are recorded because they fail.
                let _ = rls.send(request).await;
            }
        }
    }

    async fn post(&self, service: &Ratelimitd) {
        let entry = |(key, value): &(String, String)| json!({"key": key, "value": value});
        let descriptor = |descriptor: &RecordedDescriptor| json!({"entries": descriptor.entries.iter().map(entry).collect::<Vec<_>>()});
        let descriptors: Vec<_> = self.descriptors.iter().map(descriptor).collect();
        let body = json!({"domain": self.domain, "descriptors": descriptors}).to_string();
        let url = format!("http://127.0.0.1:{}/json", service.http_port());
        Client::new().post(url).body(body).send().await.expect("an answer");
    }

    /// Writes a rule file, and waits until it was loaded or refused.
    fn write(&self, service: &Ratelimitd) {
        let loads = || Exposition::of(service.http_port()).values.get("runtime_load_attempts").copied();
        let before = loads();
        let (file, text) = (self.file.as_ref().expect("a file"), self.text.as_ref().expect("a text"));
        std::fs::write(service.rules().join(file), text).expect("a rule file");
        wait::expect("the changed rules", || loads() > before);
    }
}

impl RecordedDescriptor {
    fn message(&self) -> RateLimitDescriptor {
        use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
        let entries: Vec<_> =
            self.entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let mut message = descriptor(&entries);
        message.hits_addend = self.hits_addend.map(|value| UInt64Value { value });
        message.limit = self.limit.as_ref().map(|(requests_per_unit, unit)| {
            // The numbers of the protocol.
            let unit = match unit.as_str() {
                "HOUR" => 3,
                "DAY" => 4,
                other => panic!("{other} is not recorded"),
            };
            RateLimitOverride { requests_per_unit: *requests_per_unit, unit }
        });
        message
    }
}

/// Both names of the health service, as they were asked there.
async fn check_health(service: &Ratelimitd) {
    let endpoint = Endpoint::from_shared(format!("http://127.0.0.1:{}", service.grpc_port())).expect("a URL");
    let mut client = HealthClient::new(endpoint.connect().await.expect("a connection"));
    for name in ["", "ratelimit"] {
        let request = HealthCheckRequest { service: name.to_owned() };
        client.check(request).await.expect("an answer");
    }
}
