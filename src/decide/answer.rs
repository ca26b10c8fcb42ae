//! The answer to a decision call, in no wire format yet: one status per descriptor, headers, metadata.

use std::time::Duration;

use engine::{Applied, Code, Decision, Limit, LimitResult, Metadata, Request, Status};

use super::headers::{self, Header};
use super::{HeaderStyle, ResponseOptions, metadata, summary};

/// A decision, its request, and the options that select the parts of the response.
#[derive(Clone, Copy, Debug)]
pub struct DecisionAnswer<'d> {
    pub request: &'d Request,
    pub decision: &'d Decision,
    pub options: &'d ResponseOptions,
}

/// An answer in the caller's format.
pub trait CallerAnswer: for<'a> From<DecisionAnswer<'a>> {
    /// OVER_LIMIT, without a status per descriptor.
    fn denial() -> Self;
}

/// One descriptor's part of the answer.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorStatus<'d> {
    pub code: Code,
    /// The limit that decided the code; `None` if no limit was applied.
    pub limit: Option<&'d Limit>,
    /// Units left, at most `u32::MAX`; `u32::MAX` also for an unlimited descriptor.
    pub remaining: u32,
    /// Time until the limit allows more; `None` if no limit was applied.
    pub until_reset: Option<Duration>,
}

impl<'d> DecisionAnswer<'d> {
    /// One status per descriptor, in the request's order.
    pub fn statuses(&self) -> impl ExactSizeIterator<Item = DescriptorStatus<'d>> {
        let options = self.options;
        self.decision.statuses().map(move |status| descriptor_status(status, options))
    }

    /// Whether the answer has neither headers nor metadata.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        let ResponseOptions { headers, retry_after, dynamic_metadata, .. } = self.options;
        *headers == HeaderStyle::None && !retry_after && !dynamic_metadata && self.metadata().is_none()
    }

    #[must_use]
    pub fn headers(&self) -> Vec<Header<'d>> {
        headers::for_decision(self.decision, self.options)
    }

    /// What the options ask for. The delay of a queue in any case.
    #[must_use]
    pub fn metadata(&self) -> Option<Metadata> {
        if self.options.dynamic_metadata {
            Some(metadata::for_decision(self.request, self.decision))
        } else {
            metadata::for_queue(self.decision)
        }
    }
}

fn descriptor_status<'d>(status: Status<'d>, options: &ResponseOptions) -> DescriptorStatus<'d> {
    let no_limit = DescriptorStatus { code: status.code, limit: None, remaining: 0, until_reset: None };
    match status.applied {
        Applied::Nothing | Applied::Skipped => no_limit,
        Applied::Unlimited(_) => DescriptorStatus { remaining: u32::MAX, ..no_limit },
        Applied::Limited(result) => DescriptorStatus {
            limit: Some(result.limit),
            remaining: summary::remaining(&result),
            until_reset: Some(until_reset(&result, status.code, options)),
            ..no_limit
        },
    }
}

fn until_reset(result: &LimitResult<'_>, code: Code, options: &ResponseOptions) -> Duration {
    let us = result.outcome.report.until_reset_us;
    if options.exact_durations {
        Duration::from_micros(us)
    } else {
        Duration::from_secs(summary::reset_seconds(us, code))
    }
}
