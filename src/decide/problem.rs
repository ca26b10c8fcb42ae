//! The body of a denial: problem details (RFC 9457) of the type `quota-exceeded` of
//! draft-ietf-httpapi-ratelimit-headers. It contains no value of the request.

use engine::{Applied, Code, Decision, LimitResult, Verdict};
use serde::Serialize;

use super::announcements::distinct_name;
use super::answer::{printable, retry_after_seconds};

/// Value of the header `content-type`.
pub(crate) const CONTENT_TYPE: &str = "application/problem+json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Problem {
    r#type: &'static str,
    title: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    detail: String,
    /// As `RateLimit-Policy` names them, each once.
    violated_policies: Vec<String>,
}

impl Problem {
    /// `binding` is the limit with the longest wait; `None` if the value is paused.
    pub(super) fn of_denial(decision: &Decision, binding: Option<LimitResult<'_>>) -> Self {
        let over = decision
            .limit_results()
            .filter(|result| result.outcome.verdict == Verdict::Over && !result.never_denies())
            .map(|result| distinct_name(&result));
        let paused = decision.statuses().filter_map(|status| match status.applied {
            Applied::Paused(limit, _) if status.code == Code::OverLimit => Some(limit.label.to_string()),
            _ => None,
        });
        let mut violated_policies: Vec<String> = Vec::new();
        for name in over.chain(paused).map(|name| printable(&name)) {
            if !violated_policies.contains(&name) {
                violated_policies.push(name);
            }
        }
        let what = match binding {
            Some(result) if result.limit.blocked => "blocked".to_owned(),
            Some(LimitResult { limit, .. }) => {
                format!("over {} per {}", limit.spec.requests_per_unit, limit.spec.period)
            }
            None => "paused".to_owned(),
        };
        let detail = match retry_after_seconds(decision) {
            Some(seconds) => format!("{what}; more is available in {seconds} s"),
            None => what,
        };
        Self {
            r#type: "https://iana.org/assignments/http-problem-types#quota-exceeded",
            title: "Quota Exceeded",
            status: None,
            detail,
            violated_policies,
        }
    }

    /// The body as JSON. `status`: the response's; `None` if the caller chooses it.
    pub(crate) fn json(self, status: Option<u16>) -> String {
        // Strings and a number can always be written.
        serde_json::to_string(&Self { status, ..self }).unwrap_or_default()
    }
}
