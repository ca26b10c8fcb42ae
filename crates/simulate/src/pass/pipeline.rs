//! The threads of a pass: one reads, several parse, and the caller's thread sorts, decides and counts.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use map::Map;

use super::decide::Pass;
use super::options::{PassOptions, RuleSets};
use super::parse::{BlockParser, Job, Parsed};
use super::planned::BoxedRequest;
use crate::log::{BlockReader, Input};
use crate::mapping::{FileMapping, MappingError};
use crate::report::{InputReport, Report};

/// Queue length of blocks per parser, and of parsed blocks to decide.
const WAITING_BLOCKS: usize = 2;

/// Why a log could not be simulated.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    #[error(transparent)]
    Mapping(#[from] MappingError),
    #[error("{name}: {cause}")]
    Compression { name: String, cause: std::io::Error },
    /// A thread panicked. Its message is on standard error.
    #[error("a simulation thread ended unexpectedly")]
    Thread,
}

/// Decides the requests of `inputs` by `rules`. If `stop` is set, the report covers what was read until then. Calls
/// `progress` with the number of lines read so far.
///
/// # Errors
/// [`PassError`] if a file cannot be mapped to requests. A file that cannot be read to its end is not an error: the
/// report says so.
pub fn simulate(
    rules: &RuleSets,
    map: Option<&Map>,
    inputs: Vec<Input>,
    options: &PassOptions,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64),
) -> Result<Report, PassError> {
    let threads = options.threads.get();
    thread::scope(|scope| {
        let mut pass = Pass::new(rules, map, options);
        let mut jobs = Vec::with_capacity(threads);
        let mut parsers = Vec::with_capacity(threads);
        for _ in 0..threads {
            let (job_sender, job_receiver) = sync_channel::<Job>(WAITING_BLOCKS);
            let (parsed_sender, parsed_receiver) = sync_channel::<Parsed>(WAITING_BLOCKS);
            let parser = BlockParser::new(rules, options.sample);
            let (decided_sender, decided) = channel();
            scope.spawn(move || parse_jobs(&job_receiver, &parsed_sender, &decided, parser));
            jobs.push(job_sender);
            parsers.push((parsed_receiver, decided_sender));
        }
        let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
        let reader = scope.spawn(move || Dealer { jobs, next: 0, map, options, stop }.deal_all(inputs));
        // Block by block in the order in which they were dealt out.
        for (parsed, decided) in parsers.iter().cycle() {
            let Ok(parsed) = parsed.recv() else { break };
            // The parser may have parsed its last block already.
            let _ = decided.send(pass.add(parsed, &names));
            progress(pass.lines());
        }
        // After an error the parsers' ends of the channels close, and the reader ends.
        drop(parsers);
        let dealt = reader.join().map_err(|_| PassError::Thread)??;
        Ok(pass.finish(dealt.inputs, dealt.is_partial))
    })
}

/// Parses jobs until there are none left. Requests that were `decided` come back for their memory.
fn parse_jobs(
    jobs: &Receiver<Job>,
    parsed: &SyncSender<Parsed>,
    decided: &Receiver<Vec<BoxedRequest>>,
    mut parser: BlockParser<'_>,
) {
    while let Ok(job) = jobs.recv() {
        parser.reuse(decided.try_iter());
        if parsed.send(parser.parse(&job)).is_err() {
            return;
        }
    }
}

/// What the reader has read.
struct Dealt {
    inputs: Vec<InputReport>,
    is_partial: bool,
}

/// Reads files and deals their blocks out to the parsers in turn.
struct Dealer<'a> {
    jobs: Vec<SyncSender<Job>>,
    next: usize,
    map: Option<&'a Map>,
    options: &'a PassOptions,
    stop: &'a AtomicBool,
}

impl Dealer<'_> {
    fn deal_all(mut self, inputs: Vec<Input>) -> Result<Dealt, PassError> {
        let mut dealt = Dealt { inputs: Vec::with_capacity(inputs.len()), is_partial: false };
        for (index, input) in inputs.into_iter().enumerate() {
            if self.stop.load(Ordering::Relaxed) {
                dealt.is_partial = true;
                break;
            }
            let report = self.deal_input(index, input)?;
            dealt.inputs.push(report);
        }
        dealt.is_partial |= self.stop.load(Ordering::Relaxed);
        Ok(dealt)
    }

    fn deal_input(&mut self, index: usize, input: Input) -> Result<InputReport, PassError> {
        let Input { name, read_bytes, stream, .. } = input;
        let mut report = InputReport {
            name: name.clone(),
            is_recognized: self.options.format.is_none(),
            ..InputReport::default()
        };
        let mut reader = BlockReader::new(stream);
        let (format, map) = (self.options.format, self.map);
        let mut of_file = FileMapping { name: &name, format, map, decided: None };
        while !self.stop.load(Ordering::Relaxed) {
            let mut block = match reader.next_block() {
                Ok(Some(block)) => block,
                Ok(None) => break,
                // A stopped compressed stream ends prematurely, which is expected.
                Err(_) if self.stop.load(Ordering::Relaxed) => break,
                Err(cause) if cause.kind() == ErrorKind::Unsupported => {
                    return Err(PassError::Compression { name, cause });
                }
                Err(error) => {
                    report.cut = Some(error.to_string());
                    continue;
                }
            };
            let Some(mapping) = of_file.of_block(&mut block)? else { continue };
            if !self.send(Job { input: index, mapping, block }) {
                break;
            }
        }
        let format = of_file.decided.map(|mapping| mapping.format()).or(format);
        report.format = format.map_or("", |format| format.into_str()).to_owned();
        report.bytes = read_bytes.load(Ordering::Relaxed);
        Ok(report)
    }

    /// Gives a block to the next parser. Returns `false` if the pass has stopped.
    fn send(&mut self, job: Job) -> bool {
        let parser = self.next;
        self.next = (self.next + 1) % self.jobs.len();
        self.jobs[parser].send(job).is_ok()
    }
}
