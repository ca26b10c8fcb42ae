//! What an answer says before it is written in a wire format: one status per descriptor, headers, metadata.

use std::time::Duration;

use super::headers::{self, Header};
use super::{ResponseOptions, metadata, summary};
use crate::engine::{Applied, Code, Decision, Limit, LimitResult, Metadata, Request, Status};

/// A decision, its request, and the parts that the response shall have.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'d> {
    pub request: &'d Request,
    pub decision: &'d Decision,
    pub options: &'d ResponseOptions,
}

/// One descriptor's part of the answer.
#[derive(Clone, Copy, Debug)]
pub struct DescriptorStatus<'d> {
    pub code: Code,
    /// The limit that the code rests on; `None` if no limit was applied.
    pub limit: Option<&'d Limit>,
    /// Units left, at most `u32::MAX`, which also stands for unlimited.
    pub remaining: u32,
    /// Time until the limit allows more; `None` if no limit was applied.
    pub until_reset: Option<Duration>,
}

impl<'d> Answer<'d> {
    /// One status per descriptor, in the request's order.
    pub fn statuses(&self) -> impl ExactSizeIterator<Item = DescriptorStatus<'d>> {
        let options = self.options;
        self.decision.statuses().map(move |status| descriptor_status(status, options))
    }

    #[must_use]
    pub fn headers(&self) -> Vec<Header> {
        headers::for_decision(self.decision, self.options)
    }

    /// `None` unless the options ask for it.
    #[must_use]
    pub fn metadata(&self) -> Option<Metadata> {
        self.options.dynamic_metadata.then(|| metadata::for_decision(self.request, self.decision))
    }
}

fn descriptor_status<'d>(status: Status<'d>, options: &ResponseOptions) -> DescriptorStatus<'d> {
    let bare = DescriptorStatus { code: status.code, limit: None, remaining: 0, until_reset: None };
    match status.applied {
        Applied::Nothing | Applied::Skipped => bare,
        Applied::Unlimited(_) => DescriptorStatus { remaining: u32::MAX, ..bare },
        Applied::Limited(judged) => DescriptorStatus {
            limit: Some(judged.limit),
            remaining: summary::remaining(&judged),
            until_reset: Some(until_reset(&judged, status.code, options)),
            ..bare
        },
    }
}

fn until_reset(judged: &LimitResult<'_>, code: Code, options: &ResponseOptions) -> Duration {
    let us = judged.outcome.report.until_reset_us;
    if options.exact_durations {
        Duration::from_micros(us)
    } else {
        Duration::from_secs(summary::reset_seconds(us, code))
    }
}
