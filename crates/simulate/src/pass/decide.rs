//! The deciding thread: sorts the requests of parsed blocks by time, decides and counts them.

use map::{Map, SentDescriptors};

use super::agreement::{AgreementTally, earlier_denial};
use super::assemble::assemble;
use super::counters::AllCounters;
use super::options::{PassOptions, RuleSets};
use super::parse::{MAX_KEPT_FAULTS, Parsed};
use super::planned::{BoxedRequest, PlannedRequest};
use super::sorter::Sorter;
use super::sweep::Sweep;
use super::tally::Tally;
use super::untested::Mapped;
use crate::report::{InputReport, Method, Report, RequestSample, UnreadableLine};

/// The state of the deciding thread.
pub(super) struct Pass<'a> {
    rules: &'a RuleSets,
    map: Option<&'a Map>,
    options: &'a PassOptions,
    sorter: Sorter<BoxedRequest>,
    counters: AllCounters,
    tally: Tally,
    method: Method,
    /// The map's descriptors that some line had.
    sent: SentDescriptors,
    /// `true` if some time of the log is not a whole second.
    has_millis: bool,
    /// `true` if some time of the log is not a whole millisecond.
    has_micros: bool,
}

impl<'a> Pass<'a> {
    pub fn new(rules: &'a RuleSets, map: Option<&'a Map>, options: &'a PassOptions) -> Self {
        let method = Method {
            program_version: env!("CARGO_PKG_VERSION").to_owned(),
            command_line: options.command_line.clone(),
            digests: options.digests.clone(),
            sample: RequestSample { one_in: options.sample.one_in().get(), left_out: 0 },
            ..Method::default()
        };
        let mut tally = Tally::new(rules, options.what_if);
        tally.agreement = map.filter(|map| map.has_was_limited()).map(|_| AgreementTally::default());
        Self {
            rules,
            map,
            options,
            sorter: Sorter::new(options.reorder_us),
            counters: AllCounters::new(rules),
            tally,
            method,
            sent: SentDescriptors::default(),
            has_millis: false,
            has_micros: false,
        }
    }

    pub fn lines(&self) -> u64 {
        self.method.lines
    }

    /// Adds a block, and decides the requests that no later line can precede. `names`: those of the files. Returns the
    /// decided requests for reuse of their memory.
    pub fn add(&mut self, parsed: Parsed, names: &[String]) -> Vec<BoxedRequest> {
        self.method.lines += parsed.lines;
        self.method.not_kept += parsed.not_kept;
        self.method.without_descriptor += parsed.without_descriptor;
        self.method.unreadable += parsed.unreadable;
        self.method.sample.left_out += parsed.not_sampled;
        self.sent.add_all(parsed.sent);
        let room = MAX_KEPT_FAULTS.saturating_sub(self.method.unreadable_lines.len());
        for (line, fault) in parsed.faults.into_iter().take(room) {
            let input = names.get(parsed.input).cloned().unwrap_or_default();
            self.method.unreadable_lines.push(UnreadableLine { input, line, reason: fault.to_string() });
        }
        let mut decided = Vec::with_capacity(parsed.requests.len());
        for request in parsed.requests {
            let t_us = request.seen.t_us;
            self.has_millis |= !t_us.is_multiple_of(1_000_000);
            self.has_micros |= !t_us.is_multiple_of(1_000);
            self.sorter.push(t_us, request);
            while let Some((t_us, mut request)) = self.sorter.pop_ready() {
                self.decide(t_us, &mut request);
                decided.push(request);
            }
        }
        decided
    }

    /// Decides and counts a request at a time, which may be later than its own.
    fn decide(&mut self, t_us: u64, request: &mut PlannedRequest) {
        request.seen.t_us = t_us;
        let seen = request.seen;
        let (counters, plan) = self.counters.of_log(request);
        let earlier_denial = if seen.was_limited { earlier_denial(counters, plan, t_us) } else { None };
        let decisions = self.counters.decide(request);
        if let Some(agreement) = &mut self.tally.agreement {
            let limits = self.rules.of_log().limits();
            agreement.count(seen, limits, decisions.of_log(), earlier_denial);
        }
        self.tally.count(seen, &decisions);
    }

    /// The report, after all blocks are added.
    pub fn finish(mut self, inputs: Vec<InputReport>, is_partial: bool) -> Report {
        while let Some((t_us, mut request)) = self.sorter.pop() {
            self.decide(t_us, &mut request);
        }
        self.method.inputs = inputs;
        self.method.reordering = self.sorter.reordering;
        let of_sweep = self.tally.sweep.as_ref().map_or(0, Sweep::evictions);
        self.method.evictions = self.counters.evictions() + of_sweep;
        self.method.clock_resolution_us = match (self.has_micros, self.has_millis) {
            (true, _) => 1,
            (false, true) => 1_000,
            (false, false) => 1_000_000,
        };
        let mapped = Mapped { map: self.map, sent: self.sent };
        let mut report = assemble(self.rules, mapped, &self.tally, self.method, self.options);
        report.partial = is_partial;
        report
    }
}
