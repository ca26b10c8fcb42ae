//! From a block of lines to planned requests: the part of the pass that runs on every core.

use std::sync::Arc;

use super::lane::{Plans, RuleSets};
use crate::simulate::log::{Block, LineFault, MAX_LINE_BYTES, lines};
use crate::simulate::map::{MappedLine, Mapping, NotMapped};

/// The faults of a block that are kept: the report shows the first of all.
pub(super) const MAX_KEPT_FAULTS: usize = 10;

/// A block and how its lines are read.
pub(super) struct Job {
    /// The index of the file.
    pub input: usize,
    pub mapping: Arc<Mapping>,
    pub block: Block,
}

/// A request that is ready to be decided.
pub(super) struct Planned {
    pub is_good: bool,
    pub was_limited: bool,
    pub plans: Plans,
}

/// The lines of a block.
#[derive(Default)]
pub(super) struct Parsed {
    pub input: usize,
    pub requests: Vec<(u64, Planned)>,
    pub lines: u64,
    pub not_kept: u64,
    pub without_descriptor: u64,
    pub unreadable: u64,
    /// The first faults with the numbers of their lines.
    pub faults: Vec<(u64, LineFault)>,
}

impl Job {
    pub fn parse(self, rules: &RuleSets) -> Parsed {
        let Self { input, mapping, block } = self;
        let mut parsed = Parsed { input, ..Parsed::default() };
        for (number, line) in lines(&block) {
            parsed.lines += 1;
            match parse_line(line, &mapping, rules) {
                Ok(request) => parsed.requests.push(request),
                Err(NotMapped::NotKept) => parsed.not_kept += 1,
                Err(NotMapped::NoDescriptor) => parsed.without_descriptor += 1,
                Err(NotMapped::Unreadable(fault)) => {
                    parsed.unreadable += 1;
                    if parsed.faults.len() < MAX_KEPT_FAULTS {
                        parsed.faults.push((number, fault));
                    }
                }
            }
        }
        parsed
    }
}

fn parse_line(line: &[u8], mapping: &Mapping, rules: &RuleSets) -> Result<(u64, Planned), NotMapped> {
    if line.len() > MAX_LINE_BYTES {
        return Err(LineFault::TooLong(MAX_LINE_BYTES).into());
    }
    let line = std::str::from_utf8(line).map_err(|error| LineFault::NotUtf8(error.valid_up_to()))?;
    let MappedLine { t_us, request, is_good, was_limited } = mapping.read_line(line)?;
    let plans = rules.plan(&request).map_err(|error| LineFault::Request(error.to_string()))?;
    Ok((t_us, Planned { is_good, was_limited, plans }))
}
