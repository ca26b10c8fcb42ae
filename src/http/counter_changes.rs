//! `/counters/reset`, `/counters/set` and `/counters/add`: how operators change counters. Each change is logged before
//! and after it.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::response::Response;
use engine::{Request, Reset, Store};
use serde_json::{Value, json};

use super::admin::{CounterCallError, CounterEndpoints, json_answer};
use super::console::reason_of;
use super::server::ClientAddress;
use crate::decide::NoDecision;
use crate::decide::counters::{Change, ChangeError, ChangedCounter, MOST_UNITS};

type Endpoints<S> = State<Arc<CounterEndpoints<S>>>;
type Answered = Result<Response, CounterCallError>;

pub(super) async fn reset<S: Store + Reset + 'static>(
    State(endpoints): Endpoints<S>,
    Extension(ClientAddress(peer)): Extension<ClientAddress>,
    body: Bytes,
) -> Answered {
    let (OperatorFields { reason, limit_name, .. }, body) = OperatorFields::take(&body, "")?;
    let request = endpoints.request(&body)?;
    let audit = |key: &str| {
        let key = endpoints.logged(key);
        tracing::info!(%key, %peer, reason, "resetting a counter through the admin port");
    };
    let reset = endpoints.service.reset(&request, limit_name.as_deref(), audit).await;
    let reset = reset.inspect_err(log_failure).map_err(|error| endpoints.error(error, &request.domain))?;
    let counters = reset.into_iter().map(|(key, had_units)| {
        tracing::info!(key = %endpoints.logged(&key), had_units, %peer, reason, "counter reset through the admin port");
        json!({ "key": format!("{}{key}", endpoints.key_prefix), "had_units": had_units })
    });
    endpoints.answer(counters.collect(), request)
}

/// Sets the counter of one limit of each descriptor to the descriptor's `used`.
pub(super) async fn set<S: Store + Reset + 'static>(
    State(endpoints): Endpoints<S>,
    Extension(client): Extension<ClientAddress>,
    body: Bytes,
) -> Answered {
    let units = |units: &Value| units.as_u64().filter(|units| *units <= MOST_UNITS).map(Change::Set);
    change(&endpoints, client, &body, ("used", &units)).await
}

/// Adds the descriptor's `units` to the counter of one limit of each descriptor.
pub(super) async fn add<S: Store + Reset + 'static>(
    State(endpoints): Endpoints<S>,
    Extension(client): Extension<ClientAddress>,
    body: Bytes,
) -> Answered {
    let units =
        |units: &Value| units.as_i64().filter(|units| units.unsigned_abs() <= MOST_UNITS).map(Change::Add);
    change(&endpoints, client, &body, ("units", &units)).await
}

/// Changes one counter for each descriptor. `parse` reads the descriptors' field with this name. If only one of several
/// descriptors cannot be changed, its element of the answer has the reason, as `error`.
async fn change<S: Store + Reset>(
    endpoints: &CounterEndpoints<S>,
    ClientAddress(peer): ClientAddress,
    body: &[u8],
    (field, parse): (&'static str, &(dyn Fn(&Value) -> Option<Change> + Sync)),
) -> Answered {
    let (OperatorFields { reason, limit_name, units }, body) = OperatorFields::take(body, field)?;
    let Request { domain, descriptors, hits_addend, caller } = endpoints.request(&body)?;
    let is_single = descriptors.len() == 1;
    let mut counters = Vec::with_capacity(descriptors.len());
    for (descriptor, units) in descriptors.into_iter().zip(&units) {
        let request = Request { domain: domain.clone(), descriptors: vec![descriptor], hits_addend, caller };
        let changed = match parse(units) {
            None => Err(CounterCallError::Units(field)),
            Some(change) => {
                let audit = |key: &str| {
                    let key = endpoints.logged(key);
                    tracing::info!(%key, ?change, %peer, reason, "changing a counter through the admin port");
                };
                let changed = endpoints.service.change(&request, limit_name.as_deref(), change, audit).await;
                changed.inspect_err(log_failure).map_err(|error| endpoints.error(error, &domain))
            }
        };
        counters.push(match changed {
            Ok(ChangedCounter { key, limit, used, remaining }) => {
                let shown = endpoints.logged(&key);
                tracing::info!(key = %shown, used, %peer, reason, "counter changed through the admin port");
                let key = format!("{}{key}", endpoints.key_prefix);
                json!({"key": key, "limit": *limit.label, "used": used, "remaining": remaining})
            }
            // Without the store, all others would wait for its deadline in vain.
            Err(error) if is_single || error.is_of_store() => return Err(error),
            Err(error) => json!({"error": error.to_string()}),
        });
    }
    Ok(json_answer(&json!({ "counters": counters })))
}

fn log_failure(error: &ChangeError) {
    if matches!(error, ChangeError::NoDecision(NoDecision::Store(_))) {
        tracing::warn!(%error, "counter change failed; it may have taken effect");
    }
}

/// What a body has besides the fields of `/json`.
#[derive(Default)]
struct OperatorFields {
    reason: Option<String>,
    limit_name: Option<String>,
    /// The field of each descriptor with its units; null if it has none.
    units: Vec<Value>,
}

impl OperatorFields {
    /// Takes the fields out of a body; the rest has the format of `/json`. `units`: the name of a descriptor's field.
    fn take<'b>(body: &'b [u8], units: &str) -> Result<(Self, Cow<'b, [u8]>), CounterCallError> {
        // Returns a body unchanged if it is unreadable.
        let Ok(Value::Object(mut fields)) = serde_json::from_slice(body) else {
            return Ok((Self::default(), body.into()));
        };
        let reason = fields.remove("reason").and_then(|reason| reason_of(&reason));
        let limit_name = match fields.remove("limit_name") {
            None | Some(Value::Null) => None,
            Some(Value::String(name)) => Some(name),
            Some(_) => return Err(CounterCallError::LimitName),
        };
        let descriptors = fields.get_mut("descriptors").and_then(Value::as_array_mut);
        let take = |descriptor: &mut Value| descriptor.as_object_mut()?.remove(units);
        let units = descriptors.into_iter().flatten().map(|descriptor| take(descriptor).unwrap_or_default());
        let fields_taken = Self { reason, limit_name, units: units.collect() };
        Ok((fields_taken, Value::Object(fields).to_string().into_bytes().into()))
    }
}
