//! `/check`: the decision call for proxies that ask another server about each request, such as nginx (`auth_request`),
//! Caddy, Traefik and Envoy's HTTP `ext_authz`. A map turns what the proxy says about the client's request into
//! descriptors. The answer is a status with headers, and for a denial also a body if the settings say so.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use engine::{Bounds, Code, Store};
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, StatusCode};
use map::{RequestMap, ValueFault};

use super::forwarded::{ForwardedRequest, refuse_unforwarded};
use crate::decide::problem::{self, Problem};
use crate::decide::{Answer, Handler, NoDecision, ResponseOptions};
use crate::telemetry::traces::SpannedCall;

/// What `/check` needs in addition to the handler.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    /// The current map.
    pub map: Arc<ArcSwap<RequestMap>>,
    /// Status of a denial.
    pub denied_status: StatusCode,
}

#[derive(Debug)]
pub(super) struct Checks<S> {
    handler: Arc<Handler<S>>,
    options: CheckOptions,
    response: ResponseOptions,
}

impl<S> Checks<S> {
    /// A denial always has `Retry-After`, and no answer has metadata, which proxies cannot use.
    pub fn new(handler: Arc<Handler<S>>, options: CheckOptions) -> Self {
        let response = &handler.response;
        let response = ResponseOptions { retry_after: true, dynamic_metadata: false, ..response.clone() };
        Self { handler, options, response }
    }
}

/// Answers 200 if the request may proceed, the denied status if it is over its limit, and the statuses of `/json` if
/// the call failed. Accepts every method, because Envoy uses its client's.
pub(super) async fn check<S: Store + 'static>(
    State(checks): State<Arc<Checks<S>>>,
    request: Request,
) -> Response {
    let Checks { handler, options, response } = &*checks;
    let (call, _unread_body) = request.into_parts();
    let mut span = handler.tracer.start_call(SpannedCall::Check, &call.headers);
    let read = |bounds: &Bounds| {
        refuse_unforwarded(&call.headers)?;
        let request = options.map.load().request(|field| ForwardedRequest(&call).value(field))?;
        // A request without descriptors does not match a limit, and is counted as such.
        if !request.descriptors.is_empty() {
            bounds.check(&request)?;
        }
        Ok(request)
    };
    match handler.decide_request(read, response, &mut span).await {
        Ok(CheckAnswer { mut response, code, problem }) => {
            if code == Code::OverLimit {
                *response.status_mut() = options.denied_status;
            }
            if let Some(problem) = problem {
                let content_type = HeaderValue::from_static(problem::CONTENT_TYPE);
                response.headers_mut().insert(CONTENT_TYPE, content_type);
                *response.body_mut() = problem.json(Some(options.denied_status.as_u16())).into();
            }
            response
        }
        Err(error) => error.into_response(),
    }
}

/// The log does not quote the cost.
impl From<ValueFault> for NoDecision {
    fn from(fault: ValueFault) -> Self {
        match fault {
            ValueFault::DotSegment => Self::malformed(fault),
            _ => Self::Quoting { text: "cost: expected a number", cause: fault.to_string().into() },
        }
    }
}

struct CheckAnswer {
    response: Response,
    code: Code,
    problem: Option<Problem>,
}

impl From<Answer<'_>> for CheckAnswer {
    /// Separates the headers for the client and for the upstream, which a proxy can copy to its request.
    fn from(answer: Answer<'_>) -> Self {
        let mut response = Response::new(Body::empty());
        for header in answer.headers.into_iter().chain(answer.request_headers) {
            let name = HeaderName::from_bytes(header.name.as_bytes());
            // The settings contain only header names, and values are printable ASCII.
            if let (Ok(name), Ok(value)) = (name, HeaderValue::try_from(header.value)) {
                response.headers_mut().append(name, value);
            }
        }
        Self { response, code: answer.overall, problem: answer.problem }
    }
}
