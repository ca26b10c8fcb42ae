//! One line of a replay: a recorded request in, an answer out.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::engine::{Applied, Code, Decision, Limit, LimitResult, PlanError, Request, Status};
use crate::transport::protojson::{Number, default_if_null, number};
use crate::transport::{Bounds, RawDescriptor, RawRequest, RequestError};

/// Times at and beyond this are outside the range in which decisions are exact: the year 2112.
const END_OF_TIME_US: u64 = 1 << 52;

/// A file is trusted more than a network, but its requests are bounded all the same.
const BOUNDS: Bounds = Bounds { max_descriptors: 1_024, max_entries: 1_024, max_value_bytes: 1 << 20 };

/// Why a line is not a request that can be decided.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// Not the JSON of a recorded request.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The time is out of range.
    #[error("t_us is {0}, but only times before the year 2112 can be decided exactly")]
    Time(u64),
    /// Not a complete request.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// A limit that came with the request is out of range.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// A request and when it was made.
pub(super) struct Recorded {
    pub t_us: u64,
    pub request: Request,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedJson {
    t_us: Number<u64>,
    #[serde(default, deserialize_with = "default_if_null")]
    domain: String,
    #[serde(default, deserialize_with = "default_if_null")]
    descriptors: Vec<RawDescriptor>,
    #[serde(default, deserialize_with = "number", alias = "hitsAddend")]
    hits_addend: u32,
}

impl Recorded {
    pub fn parse(text: &str) -> Result<Self, LineError> {
        let RecordedJson { t_us: Number(t_us), domain, descriptors, hits_addend } =
            serde_json::from_str(text)?;
        if t_us >= END_OF_TIME_US {
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
}

#[derive(Serialize)]
struct StatusJson<'d> {
    code: &'static str,
    rule: &'d str,
    limit_remaining: u32,
    /// -1 = never.
    retry_after_us: i64,
    reset_after_us: u64,
    next_after_us: u64,
    delay_us: u64,
}

pub(super) fn write_answer(out: &mut impl Write, t_us: u64, decision: &Decision) -> io::Result<()> {
    let statuses = decision.statuses().map(|status| describe(&status)).collect();
    serde_json::to_writer(&mut *out, &AnswerJson { t_us, overall_code: decision.overall.name(), statuses })?;
    out.write_all(b"\n")
}

fn describe<'d>(status: &Status<'d>) -> Option<StatusJson<'d>> {
    match status.applied {
        Applied::Nothing | Applied::Skipped => None,
        Applied::Unlimited(limit) => Some(unlimited(limit)),
        Applied::Limited(judged) => Some(limited(status.code, &judged)),
    }
}

fn unlimited(limit: &Limit) -> StatusJson<'_> {
    StatusJson {
        code: Code::Ok.name(),
        rule: &limit.label,
        limit_remaining: u32::MAX,
        retry_after_us: 0,
        reset_after_us: 0,
        next_after_us: 0,
        delay_us: 0,
    }
}

fn limited<'d>(status: Code, judged: &LimitResult<'d>) -> StatusJson<'d> {
    let report = judged.outcome.report;
    StatusJson {
        code: status.name(),
        rule: &judged.limit.label,
        limit_remaining: u32::try_from(report.remaining).unwrap_or(u32::MAX),
        retry_after_us: report.retry_after.us().map_or(-1, u64::cast_signed),
        reset_after_us: report.reset_after_us,
        next_after_us: report.next_after_us,
        delay_us: report.delay_us,
    }
}
