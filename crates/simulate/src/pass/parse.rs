//! Turns a block of lines into planned requests: the part of the pass that runs on every core.

use std::sync::Arc;

use map::{Became, MappedLine, SentDescriptors};

use super::options::{RuleSets, Sample};
use super::planned::{BoxedRequest, Planner};
use crate::log::{Block, LineFault, lines};
use crate::mapping::Mapping;

/// Faults kept per block: the report shows the first of all.
pub(super) const MAX_KEPT_FAULTS: usize = 10;

/// A block and how its lines are read.
pub(super) struct Job {
    /// Index of the file.
    pub input: usize,
    pub mapping: Arc<Mapping>,
    pub block: Block,
}

/// The lines of a block.
#[derive(Default)]
pub(super) struct Parsed {
    pub input: usize,
    pub requests: Vec<BoxedRequest>,
    pub lines: u64,
    pub not_kept: u64,
    pub without_descriptor: u64,
    /// The map's descriptors that some request has.
    pub sent: SentDescriptors,
    /// Requests that are not in the sample.
    pub not_sampled: u64,
    pub unreadable: u64,
    /// The first faults with their line numbers.
    pub faults: Vec<(u64, LineFault)>,
}

/// Spare requests kept by a parser: about the lines of two blocks.
const MAX_SPARE: usize = 16_384;

pub(super) struct BlockParser<'r> {
    planner: Planner<'r>,
    sample: Sample,
    /// The request of the last line, whose memory the next one reuses.
    line: MappedLine,
    /// Decided requests, kept for their memory.
    spare: Vec<BoxedRequest>,
}

impl<'r> BlockParser<'r> {
    pub fn new(rules: &'r RuleSets, sample: Sample) -> Self {
        Self { planner: Planner::new(rules, sample), sample, line: MappedLine::default(), spare: Vec::new() }
    }

    /// Takes back decided requests. Other parsers may have made them, so some may be too many for this one.
    pub fn reuse(&mut self, requests: impl IntoIterator<Item = Vec<BoxedRequest>>) {
        self.spare.extend(requests.into_iter().flatten());
        self.spare.truncate(MAX_SPARE);
    }

    pub fn parse(&mut self, job: &Job) -> Parsed {
        let Job { input, mapping, block } = job;
        let mut parsed = Parsed { input: *input, ..Parsed::default() };
        for (number, line) in lines(block) {
            parsed.lines += 1;
            match self.parse_line(line, mapping, &mut parsed) {
                Ok(Became::Request) => {}
                Ok(Became::NotKept) => parsed.not_kept += 1,
                Ok(Became::NoDescriptor) => parsed.without_descriptor += 1,
                Err(fault) => {
                    parsed.unreadable += 1;
                    if parsed.faults.len() < MAX_KEPT_FAULTS {
                        parsed.faults.push((number, fault));
                    }
                }
            }
        }
        parsed
    }

    fn parse_line(
        &mut self,
        line: &[u8],
        mapping: &Mapping,
        parsed: &mut Parsed,
    ) -> Result<Became, LineFault> {
        let became = mapping.read_line(line, &mut self.line)?;
        if became != Became::Request {
            return Ok(became);
        }
        parsed.sent.add_all(self.line.sent);
        if !self.sample.holds(&self.line.request) {
            parsed.not_sampled += 1;
            return Ok(became);
        }
        let mut request = self.spare.pop().unwrap_or_default();
        let planned = self.planner.plan(&self.line, &mut request);
        planned.map_err(|error| LineFault::Request(error.to_string()))?;
        parsed.requests.push(request);
        Ok(became)
    }
}
