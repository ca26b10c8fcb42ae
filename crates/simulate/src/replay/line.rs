//! One line of a replay: parses a recorded request and writes its answer.

use std::collections::BTreeMap;
use std::io::{self, Write};

use engine::algorithm::MAX_TIME_US;
use engine::wire::json::{Number, Object, default_if_null, objects, unsigned_number};
use engine::{
    Applied, Bounds, Code, Decision, LimitResult, PlanError, RawDescriptor, RawRequest, Receipt, Request,
    RequestError, Status,
};
use serde::{Deserialize, Serialize};

use crate::log::MAX_LINE_BYTES;

/// Wider than for the network, because the operator chose the file.
const BOUNDS: Bounds = Bounds { max_descriptors: 1_024, max_entries: 1_024, max_value_bytes: 1 << 20 };

#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The file cannot be read any further, or the line is not UTF-8.
    #[error(transparent)]
    Read(io::Error),
    /// Not the JSON of a recorded request.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("longer than {MAX_LINE_BYTES} bytes")]
    TooLong,
    #[error("t_us is {0}, but only times before the year 2112 can be decided exactly")]
    Time(u64),
    #[error(transparent)]
    Request(#[from] RequestError),
    /// An override is out of range.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// A request and the time at which it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Microseconds since the epoch.
    pub t_us: u64,
    pub request: Request,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedJson {
    t_us: Number<u64>,
    #[serde(default, deserialize_with = "default_if_null")]
    domain: String,
    #[serde(default, deserialize_with = "objects")]
    descriptors: Vec<RawDescriptor>,
    #[serde(default, deserialize_with = "unsigned_number", alias = "hitsAddend")]
    hits_addend: u32,
}

impl Recorded {
    /// Parses one line of JSON.
    ///
    /// # Errors
    /// [`LineError`] if it is not a valid request.
    pub fn parse(text: &str) -> Result<Self, LineError> {
        let Object(RecordedJson { t_us: Number(t_us), domain, descriptors, hits_addend }) =
            serde_json::from_str(text)?;
        if t_us > MAX_TIME_US {
            return Err(LineError::Time(t_us));
        }
        let raw = RawRequest { domain, descriptors, hits_addend };
        Ok(Self { t_us, request: raw.validate(&BOUNDS)? })
    }
}

#[derive(Serialize)]
struct AnswerJson<'d> {
    t_us: u64,
    overall_code: &'static str,
    statuses: Vec<Option<StatusJson<'d>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<String>,
    /// By the label of the limit. Omitted if nothing is announced.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    announce: BTreeMap<&'d str, &'static str>,
}

#[derive(Default, Serialize)]
struct StatusJson<'d> {
    code: &'static str,
    rule: &'d str,
    limit_remaining: u32,
    /// -1: never.
    retry_after_us: i64,
    reset_after_us: u64,
    next_after_us: u64,
    delay_us: u64,
}

pub(super) fn write_answer(
    out: &mut impl Write,
    t_us: u64,
    decision: &Decision,
    receipt: Option<Receipt>,
) -> io::Result<()> {
    let statuses = decision.statuses().map(|status| status_json(&status)).collect();
    let receipt = receipt.map(|receipt| receipt.to_string());
    let (overall_code, announce) = (decision.overall.into_str(), announcements(decision));
    let answer = AnswerJson { t_us, overall_code, statuses, receipt, announce };
    serde_json::to_writer(&mut *out, &answer)?;
    out.write_all(b"\n")
}

/// The limits that the answer announces; for limits with the same label the most severe announcement.
fn announcements(decision: &Decision) -> BTreeMap<&str, &'static str> {
    if !decision.has_announced_limits() {
        return BTreeMap::new();
    }
    let mut announced: Vec<_> = decision
        .limit_results()
        .filter_map(|result| Some((result.announced()?, &*result.limit.label)))
        .collect();
    announced.sort_unstable();
    announced.into_iter().map(|(announced, label)| (label, announced.into_str())).collect()
}

fn status_json<'d>(status: &Status<'d>) -> Option<StatusJson<'d>> {
    match status.applied {
        Applied::Nothing | Applied::Paused(..) => None,
        Applied::Unlimited(limit) => Some(StatusJson {
            code: Code::Ok.into_str(),
            rule: &limit.label,
            limit_remaining: u32::MAX,
            ..StatusJson::default()
        }),
        Applied::Limited(LimitResult { limit, outcome, .. }) => Some(StatusJson {
            code: status.code.into_str(),
            rule: &limit.label,
            limit_remaining: u32::try_from(outcome.report.remaining).unwrap_or(u32::MAX),
            retry_after_us: outcome.report.retry_after.us().map_or(-1, u64::cast_signed),
            reset_after_us: outcome.report.reset_after_us,
            next_after_us: outcome.report.next_after_us,
            delay_us: outcome.report.delay_us,
        }),
    }
}
