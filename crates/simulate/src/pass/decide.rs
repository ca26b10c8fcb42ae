//! The deciding thread: sorts the requests of parsed blocks by time, decides and counts them.

use super::agreement::{AgreementTally, EarlierDenial, earlier_denial};
use super::assemble::assemble;
use super::lane::Lanes;
use super::options::PassOptions;
use super::parse::{MAX_KEPT_FAULTS, Parsed};
use super::planned::{PlannedBlock, RequestPlans};
use super::rule_sets::RuleSets;
use super::sorter::Sorter;
use super::sweep::Sweep;
use super::tally::Tally;
use super::untested::Mapped;
use crate::map::{Map, SentDescriptors};
use crate::report::{InputReport, Method, Report, RequestSample, UnreadableLine};

/// Blocks are packed when they hold so many requests more than wait, and four times as many.
const PACKED_FROM: usize = 100_000;

/// Where a request is that waits.
#[derive(Clone, Copy, Debug)]
struct Place {
    block: usize,
    request: usize,
}

/// A block of which requests wait.
#[derive(Debug, Default)]
struct WaitingBlock {
    requests: PlannedBlock,
    waiting: usize,
}

/// The state of the deciding thread.
pub(super) struct Pass<'a> {
    rules: &'a RuleSets,
    map: Option<&'a Map>,
    options: &'a PassOptions,
    sorter: Sorter<Place>,
    blocks: Vec<WaitingBlock>,
    /// The indexes of blocks of which no request waits.
    free: Vec<usize>,
    /// The number of requests in `blocks`.
    held: usize,
    deciding: Deciding,
    method: Method,
    /// The descriptors of the map that a line had.
    sent: SentDescriptors,
    /// A bit for each kind of step that times of the log have: below a second, below a millisecond.
    has_millis: bool,
    has_micros: bool,
}

/// The counters, and what is counted of decisions.
struct Deciding {
    lanes: Lanes,
    tally: Tally,
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
            blocks: Vec::new(),
            free: Vec::new(),
            held: 0,
            deciding: Deciding { lanes: Lanes::new(rules), tally },
            method,
            sent: SentDescriptors::default(),
            has_millis: false,
            has_micros: false,
        }
    }

    /// Lines so far.
    pub fn lines(&self) -> u64 {
        self.method.lines
    }

    /// Adds a block, and decides the requests that no later line can come before. `names` are those of the files.
    pub fn add(&mut self, parsed: Parsed, names: &[String]) {
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
        let times: Vec<u64> = parsed.requests.times().collect();
        let block = self.hold(parsed.requests);
        for (request, t_us) in times.into_iter().enumerate() {
            self.has_millis |= !t_us.is_multiple_of(1_000_000);
            self.has_micros |= !t_us.is_multiple_of(1_000);
            self.sorter.push(t_us, Place { block, request });
            while let Some((t_us, place)) = self.sorter.pop_ready() {
                self.decide(t_us, place);
            }
        }
        if self.held > 4 * self.sorter.waiting() + PACKED_FROM {
            self.pack();
        }
    }

    /// Keeps a block until its requests are decided.
    fn hold(&mut self, requests: PlannedBlock) -> usize {
        let waiting = requests.len();
        self.held += waiting;
        let block = WaitingBlock { requests, waiting };
        match self.free.pop() {
            Some(place) => {
                self.blocks[place] = block;
                place
            }
            None => {
                self.blocks.push(block);
                self.blocks.len() - 1
            }
        }
    }

    /// Copies the requests that wait into one block: a few requests that wait for long must not keep many blocks.
    fn pack(&mut self) {
        let mut packed = PlannedBlock::default();
        for place in self.sorter.waiting_mut() {
            let request = packed.copy(&self.blocks[place.block].requests, place.request);
            *place = Place { block: 0, request };
        }
        self.held = packed.len();
        self.free.clear();
        self.blocks = vec![WaitingBlock { waiting: packed.len(), requests: packed }];
    }

    fn decide(&mut self, t_us: u64, place: Place) {
        let block = &mut self.blocks[place.block];
        self.deciding.decide(t_us, &block.requests, place.request);
        block.waiting -= 1;
        if block.waiting == 0 {
            self.held -= block.requests.len();
            block.requests = PlannedBlock::default();
            self.free.push(place.block);
        }
    }

    /// The report, when all blocks are added.
    pub fn finish(mut self, inputs: Vec<InputReport>, is_partial: bool) -> Report {
        while let Some((t_us, place)) = self.sorter.pop() {
            self.decide(t_us, place);
        }
        self.method.inputs = inputs;
        self.method.reordering = self.sorter.reordering;
        let of_sweep = self.deciding.tally.sweep.as_ref().map_or(0, Sweep::evictions);
        self.method.evictions = self.deciding.lanes.evictions() + of_sweep;
        self.method.clock_resolution_us = match (self.has_micros, self.has_millis) {
            (true, _) => 1,
            (false, true) => 1_000,
            (false, false) => 1_000_000,
        };
        let mapped = Mapped { map: self.map, sent: self.sent };
        let mut report = assemble(self.rules, mapped, &self.deciding.tally, self.method, self.options);
        report.partial = is_partial;
        report
    }
}

impl Deciding {
    /// Decides and counts a request of a block at a time, which may be later than its own.
    fn decide(&mut self, t_us: u64, block: &PlannedBlock, request: usize) {
        let mut request = block.request(request);
        request.seen.t_us = t_us;
        let seen = request.seen;
        let earlier_denial = if seen.was_limited { self.earlier_denial(&request) } else { None };
        let Some(decisions) = self.lanes.decide(request) else { return };
        if let Some(agreement) = &mut self.tally.agreement {
            agreement.count(seen, (self.lanes.recorded(), decisions.recorded()), earlier_denial);
        }
        self.tally.count(seen, &decisions);
    }

    /// Looks for an earlier time at which the rules whose decisions the log has would deny a request that is not
    /// decided yet.
    fn earlier_denial(&self, request: &RequestPlans<'_>) -> Option<EarlierDenial> {
        let plan = self.lanes.recorded_plan(request)?;
        earlier_denial(self.lanes.recorded(), plan, request.seen.t_us)
    }
}
