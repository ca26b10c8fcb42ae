//! Serves the admin port: JSON pages that the application provides, and the endpoints that show and reset counters and
//! explain a request. `console` has the console's endpoints.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use engine::wire::json::Object;
use engine::{Bounds, Listing, PlanError, RawRequest, Request, Reset, Scope, Store, is_global_key};
use futures_util::future::BoxFuture;
use http::{StatusCode, header};
use rules::{Description, nearest_name, utc_text};
use serde_json::{Value, json};

use super::admin_token::{AccessCheck, check_access};
use super::console::{CONSOLE, ConsoleEndpoints, console_router};
use super::counter_changes::{change, reset};
use super::exceptions::{EXCEPTIONS, exceptions_router};
use super::server::ClientAddress;
use super::usage::{UsageEndpoint, usage_router};
use crate::console::Console;
use crate::decide::NoDecision;
use crate::decide::counters::{ChangeError, CounterService, CounterStatus};
use crate::decide::usage_list::{UsageListError, UsageListRequest, list_usage};
use crate::grpc::BoxError;
use crate::live::LiveExceptions;

const COUNTERS: &str = "\
/explain         POST a request as for /json: which limits of the active rules apply, and why
/counters/show   POST the same: the state of its counters
/counters/reset  POST the same: reset its counters to unused
/counters/set    POST the same, and used: set the used units of one counter
/counters/add    POST the same, and units: add to the used units of one counter
/usage           POST the same: what is used of all its limits
/usage/list      POST domain, rule and top: the most used counters of a rule, with the values of keys
";

/// Answers GET with a string.
#[derive(Clone)]
pub struct Endpoint {
    /// Starts with `/`.
    pub path: &'static str,
    /// For the index at `/`.
    pub summary: &'static str,
    pub content_type: &'static str,
    /// Called for each request.
    pub render: Arc<dyn Fn() -> BoxFuture<'static, String> + Send + Sync>,
}

/// Returns the admin port's router, with an index of the endpoints at `/`.
pub fn admin_router<S: Store + Reset + Listing + 'static>(
    endpoints: Vec<Endpoint>,
    counters: CounterEndpoints<S>,
    usage: UsageEndpoint<S>,
    console: ConsoleEndpoints<S>,
    live: LiveExceptions,
    access: AccessCheck,
) -> Router {
    let lines = endpoints.iter().map(|endpoint| format!("{:<16} {}\n", endpoint.path, endpoint.summary));
    let index: String = lines.chain([COUNTERS, EXCEPTIONS, CONSOLE].map(str::to_owned)).collect();
    let max_body_bytes = counters.max_message_bytes;
    let counters = Router::new()
        .route("/counters/show", post(show::<S>))
        .route("/counters/reset", post(reset::<S>))
        .route("/counters/set", post(change::<S>))
        .route("/counters/add", post(change::<S>))
        .route("/explain", post(explain::<S>))
        .route("/usage/list", post(list::<S>))
        .layer(DefaultBodyLimit::max(max_body_bytes))
        .with_state(Arc::new(counters))
        .merge(console_router(console, live.clone()).layer(DefaultBodyLimit::max(max_body_bytes)))
        .merge(usage_router(usage))
        .merge(exceptions_router(live));
    let index = move || async move { index };
    let add = |router: Router, endpoint: Endpoint| {
        let path = endpoint.path;
        let answer =
            async move || ([(header::CONTENT_TYPE, endpoint.content_type)], (endpoint.render)().await);
        router.route(path, get(answer))
    };
    let router = endpoints.into_iter().fold(counters.route("/", get(index)), add);
    router.layer(from_fn_with_state(Arc::new(access), check_access))
}

/// `/counters/show`, and those that `counter_changes` serves: the counters that a request's descriptors match. A call's
/// body is one of `/json`.
pub struct CounterEndpoints<S> {
    pub service: CounterService<S>,
    pub bounds: Bounds,
    pub max_message_bytes: usize,
    /// Comes before every key in the store.
    pub key_prefix: String,
    /// Creates the service of one list, with separate connections.
    pub list_service: ListService<S>,
    pub explain: Explain,
    /// Masks keys for the log.
    pub console: Arc<Console>,
}

/// Creates a service.
pub type ListService<S> = Arc<dyn Fn() -> Result<CounterService<S>, BoxError> + Send + Sync>;

/// Explains a request by the current rules.
pub type Explain = Arc<dyn Fn(&Request) -> Result<Description, PlanError> + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub(super) enum CounterCallError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    NoDecision(#[from] NoDecision),
    #[error(transparent)]
    Change(ChangeError),
    /// The name of the field, and what is expected.
    #[error("{0} must be {1}")]
    Field(&'static str, &'static str),
    #[error(transparent)]
    List(#[from] UsageListError),
    /// The settings of the store are invalid by now, such as a file that is gone.
    #[error("cannot connect to the store: {0}")]
    NoStore(BoxError),
    #[error("no counted limit in domain {0:?} matches this request")]
    NoCounter(String),
    /// Most likely misspelled.
    #[error("no rules for domain {domain:?}{hint}")]
    NoDomain { domain: String, hint: String },
}

impl IntoResponse for CounterCallError {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::NoDecision(NoDecision::Store(_) | NoDecision::NoRules)
            | Self::List(UsageListError::NoDecision(_))
            | Self::NoStore(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::NoCounter(_) | Self::NoDomain { .. } | Self::List(UsageListError::NoRule { .. }) => {
                StatusCode::NOT_FOUND
            }
            Self::Json(_) | Self::NoDecision(_) | Self::List(_) | Self::Change(_) | Self::Field(..) => {
                StatusCode::BAD_REQUEST
            }
        };
        (status, format!("{self}\n")).into_response()
    }
}

async fn show<S: Store + Reset + 'static>(
    State(endpoints): State<Arc<CounterEndpoints<S>>>,
    body: Bytes,
) -> Result<Response, CounterCallError> {
    let request = endpoints.request(&body)?;
    let counters = endpoints.service.show(&request).await?;
    let counters = counters.iter().map(|counter| endpoints.counter_json(counter));
    endpoints.answer(counters.collect(), request)
}

async fn list<S: Store + Reset + Listing + 'static>(
    State(endpoints): State<Arc<CounterEndpoints<S>>>,
    Extension(ClientAddress(peer)): Extension<ClientAddress>,
    body: Bytes,
) -> Result<Response, CounterCallError> {
    let request: UsageListRequest = serde_json::from_slice(&body)?;
    if request.cursor.is_none() {
        tracing::info!(%peer, top = request.top, "counters of a rule listed through the admin port");
    }
    let service = (endpoints.list_service)().map_err(CounterCallError::NoStore)?;
    let mut list = list_usage(&service, &request).await?;
    for counter in &mut list.counters {
        counter.key.insert_str(0, &endpoints.key_prefix);
    }
    Ok(json_answer(&json!(list)))
}

async fn explain<S: Store + Reset + 'static>(
    State(endpoints): State<Arc<CounterEndpoints<S>>>,
    body: Bytes,
) -> Result<Response, CounterCallError> {
    let request = endpoints.request(&body)?;
    let Description { text, matched, limits } = (endpoints.explain)(&request).map_err(NoDecision::from)?;
    let limits: Value = limits.iter().map(|(name, limit)| json!({"name": name, "limit": limit})).collect();
    Ok(json_answer(&json!({"text": text, "matched": matched, "limits": limits})))
}

fn json_answer(answer: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], format!("{answer:#}\n")).into_response()
}

impl<S: Store + Reset> CounterEndpoints<S> {
    pub(super) fn request(&self, body: &[u8]) -> Result<Request, CounterCallError> {
        let Object(raw): Object<RawRequest> = serde_json::from_slice(body)?;
        Ok(raw.validate(&self.bounds).map_err(NoDecision::from)?)
    }

    /// # Errors
    /// If there is no counter, because no rule has one or the domain does not exist.
    pub(super) fn answer(
        &self,
        counters: Vec<Value>,
        request: Request,
    ) -> Result<Response, CounterCallError> {
        if !counters.is_empty() {
            return Ok(json_answer(&json!({ "counters": counters })));
        }
        Err(self.no_counter(request.domain))
    }

    fn no_counter(&self, domain: String) -> CounterCallError {
        let rules = self.service.rulebook.rules();
        if rules.domain(&domain).is_some() {
            return CounterCallError::NoCounter(domain);
        }
        let mut names: Vec<&str> = rules.domains().collect();
        names.sort_unstable();
        let hint = nearest_name(&domain, &names).map(|name| format!("; did you mean {name:?}?"));
        CounterCallError::NoDomain { hint: hint.unwrap_or_default(), domain }
    }

    pub(super) fn error(&self, error: ChangeError, domain: &str) -> CounterCallError {
        match error {
            ChangeError::NoDecision(error) => error.into(),
            ChangeError::NoCounter => self.no_counter(domain.to_owned()),
            error => CounterCallError::Change(error),
        }
    }

    /// Returns a key as it is logged, with masked values.
    pub(super) fn logged(&self, key: &str) -> String {
        self.console.logged(&self.service.rulebook.rules(), key)
    }

    fn counter_json(&self, counter: &CounterStatus) -> Value {
        let CounterStatus { key, usage, exception, slots } = counter;
        let mut shown = json!(usage);
        shown["key"] = format!("{}{key}", self.key_prefix).into();
        if let Some(exception) = exception {
            shown["exception"] = exception.as_str().into();
        }
        let borrowed = self.service.store.borrowed(key);
        if borrowed > 0 {
            shown["borrowed"] = borrowed.into();
        }
        if is_global_key(key) {
            shown["scope"] = Scope::Global.into_str().into();
        }
        if !slots.is_empty() {
            let slot = |&(since_us, end_us)| json!({"since": utc_text(since_us), "ends": utc_text(end_us)});
            shown["slots"] = slots.iter().map(slot).collect();
        }
        shown
    }
}
