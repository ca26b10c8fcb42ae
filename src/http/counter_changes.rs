//! `/counters/reset`, `/counters/set` and `/counters/add`: how operators change counters. Each change is logged before
//! and after it.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Extension, State};
use axum::response::Response;
use engine::{Request, Reset, Store};
use http::Uri;
use serde_json::{Value, json};

use super::admin::{CounterCallError, CounterEndpoints};
use super::console::reason_of;
use super::server::ClientAddress;
use crate::decide::counters::{Change, ChangeError, ChangedCounter, MOST_UNITS};

type Endpoints<S> = State<Arc<CounterEndpoints<S>>>;
type Answered = Result<Response, CounterCallError>;

const LONG_REASON: CounterCallError =
    CounterCallError::Field("the reason", "a text of at most 200 characters");
const UNITS: &str = "a whole number of at most 2^52";

pub(super) async fn reset<S: Store + Reset + 'static>(
    State(endpoints): Endpoints<S>,
    Extension(ClientAddress(peer)): Extension<ClientAddress>,
    body: Bytes,
) -> Answered {
    let Order { request, reason, limit_name, .. } = Order::read(&endpoints, &body)?;
    let audit = |key: &str| {
        let key = endpoints.logged(key);
        tracing::info!(%key, %peer, reason, "resetting a counter through the admin port");
    };
    let reset = endpoints.service.reset(&request, limit_name.as_deref(), audit).await.map_err(|error| {
        if let ChangeError::NoDecision(error) = &error {
            tracing::warn!(%error, "counter reset failed; it may have taken effect");
        }
        endpoints.error(error, &request.domain)
    })?;
    let counters = reset.into_iter().map(|(key, had_units)| {
        tracing::info!(key = %endpoints.logged(&key), had_units, %peer, reason, "counter reset through the admin port");
        json!({ "key": format!("{}{key}", endpoints.key_prefix), "had_units": had_units })
    });
    endpoints.answer(counters.collect(), request)
}

/// Sets the counter of one limit to `used`, or adds `units` to it.
pub(super) async fn change<S: Store + Reset + 'static>(
    State(endpoints): Endpoints<S>,
    Extension(ClientAddress(peer)): Extension<ClientAddress>,
    uri: Uri,
    body: Bytes,
) -> Answered {
    let Order { request, reason, limit_name, used, units } = Order::read(&endpoints, &body)?;
    let change = if uri.path() == "/counters/set" {
        let used = used.as_u64().filter(|used| *used <= MOST_UNITS);
        Change::Set(used.ok_or(CounterCallError::Field("used", UNITS))?)
    } else {
        let units = units.as_i64().filter(|units| units.unsigned_abs() <= MOST_UNITS);
        Change::Add(units.ok_or(CounterCallError::Field("units", UNITS))?)
    };
    let audit = |key: &str| {
        let key = endpoints.logged(key);
        tracing::info!(%key, ?change, %peer, reason, "changing a counter through the admin port");
    };
    let changed = endpoints.service.change(&request, limit_name.as_deref(), change, audit).await;
    let ChangedCounter { key, name, limit, used, remaining } = changed.map_err(|error| {
        if let ChangeError::NoDecision(error) = &error {
            tracing::warn!(%error, "counter change failed; it may have taken effect");
        }
        endpoints.error(error, &request.domain)
    })?;
    tracing::info!(key = %endpoints.logged(&key), used, %peer, reason, "counter changed through the admin port");
    let key = format!("{}{key}", endpoints.key_prefix);
    let counter = json!({"key": key, "name": name, "limit": limit, "used": used, "remaining": remaining});
    endpoints.answer(vec![counter], request)
}

/// A call's body: a request in the format of `/json`, and what an operator adds.
struct Order {
    request: Request,
    reason: Option<String>,
    limit_name: Option<String>,
    used: Value,
    units: Value,
}

impl Order {
    fn read<S: Store + Reset>(
        endpoints: &CounterEndpoints<S>,
        body: &[u8],
    ) -> Result<Self, CounterCallError> {
        let mut object: Option<Value> = serde_json::from_slice(body).ok();
        let mut take = |name| {
            object
                .as_mut()
                .and_then(Value::as_object_mut)
                .and_then(|fields| fields.remove(name))
                .unwrap_or_default()
        };
        let [reason, limit_name, used, units] = ["reason", "limit_name", "used", "units"].map(&mut take);
        // Refuses an unreadable body as `/json` does.
        let rest = object.map(|object| object.to_string());
        Ok(Self {
            reason: (!reason.is_null()).then(|| reason_of(&reason).ok_or(LONG_REASON)).transpose()?,
            limit_name: serde_json::from_value(limit_name)?,
            request: endpoints.request(rest.as_deref().map_or(body, str::as_bytes))?,
            used,
            units,
        })
    }
}
