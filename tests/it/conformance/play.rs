//! Plays one case: starts a service, sends the requests, compares the answers.

use envoy_types::pb::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use envoy_types::pb::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::{
    Entry, RateLimitOverride,
};
use envoy_types::pb::envoy::r#type::v3::RateLimitUnit;
use envoy_types::pb::google::protobuf::UInt64Value;
use serde_json::{Map, Value, json};

use super::case::{Case, Step, StepRequest};
use super::observed::{self, Span};
use super::{Counters, reference_settings};
use crate::support::grpc::{RateLimitRequest, Rls};
use crate::support::process::Ratelimitd;
use crate::support::{http, wait};

/// How often a case is played if its windows keep ending.
const ATTEMPTS: usize = 5;

/// Plays the case. Returns its first difference.
pub fn play(case: &Case, counters: Counters<'_>) -> Option<String> {
    for attempt in 0..ATTEMPTS {
        let start = wait::unix_seconds();
        let difference = play_once(case, counters, attempt);
        let span = Span { start, end: wait::unix_seconds() };
        if difference.is_none() || !span.ends_a_window(&case.text) {
            return difference;
        }
    }
    panic!("{}: a window ended during each of {ATTEMPTS} attempts", case.name);
}

fn play_once(case: &Case, counters: Counters<'_>, attempt: usize) -> Option<String> {
    let service = match reference_settings::plan(case, counters, attempt).try_start() {
        Ok(service) => service,
        Err(problem) => return Some(format!("the service does not start: {}", problem.log)),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut rls = Rls::connect(service.grpc_port()).await;
        for (index, step) in case.steps.iter().enumerate() {
            let start = wait::unix_seconds();
            let answer = send(step, &service, &mut rls).await;
            let span = Span { start, end: wait::unix_seconds() };
            let (recorded, answer) = observed::comparable(&step.recorded, answer, &span);
            if recorded != answer {
                return Some(format!("step {index}\n  recorded: {recorded}\n  answered: {answer}"));
            }
        }
        None
    })
}

async fn send(step: &Step, service: &Ratelimitd, rls: &mut Rls) -> Value {
    match &step.request {
        StepRequest::Call { request, repeat } => {
            let mut answer = Value::Null;
            for _ in 0..*repeat {
                answer = match rls.send(request_message(request)).await {
                    Ok(response) => json!({ "answer": observed::response(response) }),
                    Err(status) => {
                        let code = observed::code_name(status.code());
                        json!({ "error": { "code": code, "message": status.message() } })
                    }
                };
            }
            answer
        }
        StepRequest::Http { method, path, body } => {
            let is_debug = path == "/rlconfig";
            let port = if is_debug { service.admin_port() } else { service.http_port() };
            let lines = [format!("{method} {path} HTTP/1.1"), "host: localhost".to_owned()];
            let connection = http::connect(port).expect("the service listens");
            let response = http::exchange(connection, &lines, body.as_deref().unwrap_or_default());
            observed::http_response(&response.expect("an answer"), is_debug, &step.recorded)
        }
    }
}

/// Takes the fields of a message in protobuf JSON one by one. A field that is left is not known to the player.
struct Message(Map<String, Value>);

impl Message {
    fn new(value: &Value) -> Self {
        Self(value.as_object().expect("a message is a map").clone())
    }

    fn text(&mut self, name: &str) -> String {
        self.0.remove(name).map_or_else(String::new, |text| text.as_str().expect("text").to_owned())
    }

    fn number(&mut self, name: &str) -> Option<u64> {
        self.0.remove(name).map(|number| number.as_u64().expect("a number"))
    }

    fn list<T>(&mut self, name: &str, read: impl Fn(&Value) -> T) -> Vec<T> {
        let list = self.0.remove(name).unwrap_or_else(|| json!([]));
        list.as_array().expect("a list").iter().map(read).collect()
    }

    fn finish(self) {
        assert!(self.0.is_empty(), "fields that the player does not know: {:?}", self.0);
    }
}

fn request_message(call: &Value) -> RateLimitRequest {
    let mut message = Message::new(call);
    let hits = message.number("hitsAddend").unwrap_or(0);
    let request = RateLimitRequest {
        domain: message.text("domain"),
        descriptors: message.list("descriptors", descriptor_message),
        hits_addend: u32::try_from(hits).expect("32 bits"),
    };
    message.finish();
    request
}

fn descriptor_message(descriptor: &Value) -> RateLimitDescriptor {
    let mut message = Message::new(descriptor);
    let limit = message.0.remove("limit");
    let descriptor = RateLimitDescriptor {
        entries: message.list("entries", entry_message),
        limit: limit.as_ref().map(limit_message),
        hits_addend: message.number("hitsAddend").map(|value| UInt64Value { value }),
        ..RateLimitDescriptor::default()
    };
    message.finish();
    descriptor
}

fn entry_message(entry: &Value) -> Entry {
    let mut message = Message::new(entry);
    let entry = Entry { key: message.text("key"), value: message.text("value") };
    message.finish();
    entry
}

fn limit_message(limit: &Value) -> RateLimitOverride {
    let mut message = Message::new(limit);
    let unit = RateLimitUnit::from_str_name(&message.text("unit")).expect("a unit");
    let requests = message.number("requestsPerUnit").expect("a limit");
    message.finish();
    RateLimitOverride { requests_per_unit: u32::try_from(requests).expect("32 bits"), unit: unit.into() }
}
