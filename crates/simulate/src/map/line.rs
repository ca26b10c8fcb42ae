//! From a line of a log to a request.

use std::borrow::Cow;
use std::sync::Arc;

use engine::{Caller, Descriptor, Entry, Request};
use rules::nearest_name;

use super::entry::DescriptorRule;
use super::expression::{Expression, FieldIndex, whole_number};
use super::path::{one_spelling, path_of};
use super::read::{CostRule, Map, TimeField};
use super::sent::SentDescriptors;
use super::yaml_map::MapError;
use crate::log::{Block, Format, LineFault, LineReader, Selected, TimeFormat, lines, recognize};
use crate::replay::Recorded;

/// A line that became a request. The next line may take its place and use its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MappedLine {
    pub t_us: u64,
    pub request: Request,
    /// `good` of the map; false without it.
    pub is_good: bool,
    /// `was_limited` of the map; false without it.
    pub was_limited: bool,
    /// The descriptors of the map that the request has.
    pub sent: SentDescriptors,
    /// Descriptors that are not part of the request; their memory is used for further ones.
    spare: Vec<Descriptor>,
}

impl Default for MappedLine {
    fn default() -> Self {
        let request = Request {
            domain: String::new(),
            hits_addend: 1,
            descriptors: Vec::new(),
            caller: Caller::default(),
        };
        let sent = SentDescriptors::default();
        Self { t_us: 0, request, is_good: false, was_limited: false, sent, spare: Vec::new() }
    }
}

/// A line that did not become a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotMapped {
    /// `keep` does not hold.
    NotKept,
    /// Each descriptor has an entry without a value.
    NoDescriptor,
    Unreadable(LineFault),
}

impl From<LineFault> for NotMapped {
    fn from(fault: LineFault) -> Self {
        Self::Unreadable(fault)
    }
}

/// The values of a line.
pub(super) struct Spelled<'l> {
    pub values: Selected<'l>,
    /// With the path as the client wrote it, if that is not its one spelling.
    as_written: Option<Selected<'l>>,
}

impl Spelled<'_> {
    /// Whether `condition` may hold if each comparison sees either spelling: a client that spells what is exempt in
    /// another way gets a limit, and never loses one. With one spelling for the whole condition, a path could miss
    /// what a condition asks for in the one, and what it rules out in the other.
    pub fn meets(&self, condition: &Expression) -> bool {
        match &self.as_written {
            None => condition.holds(&self.values),
            Some(as_written) => condition.may_be(true, &[&self.values, as_written]),
        }
    }
}

/// The first lines of a file, from which its format is recognized.
const FIRST_LINES: usize = 100;

/// Why the lines of a file cannot become requests.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error("{0}: the format cannot be recognized from its first lines; name it with --format")]
    UnknownFormat(String),
    #[error("{name}: lines of the format {format} need a map: --map FILE says which descriptors they become")]
    NoMap { name: String, format: &'static str },
}

/// Where the time of a request is.
#[derive(Clone, Debug)]
enum TimeSource {
    /// The first of these fields that the line has.
    Fields(Vec<TimeField>),
    /// The time at which nginx wrote the line, with and without milliseconds, and the duration of the request.
    Nginx { time_local: FieldIndex, msec: FieldIndex, request_time: FieldIndex },
}

/// Maps the lines of one file.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    reader: LineReader,
    /// `None` for recorded requests.
    map: Option<(Arc<Map>, TimeSource)>,
}

/// The mapping of one file, which the first block with lines decides.
pub(crate) struct FileMapping<'a> {
    pub name: &'a str,
    /// `None`: the format is to be recognized.
    pub format: Option<Format>,
    pub map: Option<&'a Map>,
    pub decided: Option<Arc<Mapping>>,
}

impl FileMapping<'_> {
    /// How the lines of the next block are mapped; `None` while the file has had only blank lines. Removes the header
    /// from the first block.
    ///
    /// # Errors
    /// [`MappingError`] if the format is not known, or the map does not fit it.
    pub fn of_block(&mut self, block: &mut Block) -> Result<Option<Arc<Mapping>>, MappingError> {
        if self.decided.is_none() {
            let made = Mapping::of_first_block(block, self.name, self.format, self.map)?;
            self.decided = made.map(Arc::new);
        }
        Ok(self.decided.clone())
    }
}

impl Mapping {
    fn of_first_block(
        block: &mut Block,
        name: &str,
        format: Option<Format>,
        map: Option<&Map>,
    ) -> Result<Option<Self>, MappingError> {
        let text = |line: &[u8]| String::from_utf8_lossy(line).into_owned();
        let first: Vec<String> = lines(block).take(FIRST_LINES).map(|(_, line)| text(line)).collect();
        let Some(header) = first.first() else { return Ok(None) };
        let format = format.or_else(|| recognize(first.iter().map(String::as_str)));
        let format = format.ok_or_else(|| MappingError::UnknownFormat(name.to_owned()))?;
        if format == Format::Csv {
            let end = lines(block).next().map_or(0, |(number, _)| number - block.first_line + 1);
            block.remove_lines(end);
        }
        match (format, map) {
            (Format::Jsonl, _) => Ok(Some(Self::of_recorded_requests())),
            (_, Some(map)) => Ok(Some(Self::new(map, format, header)?)),
            (_, None) => Err(MappingError::NoMap { name: name.to_owned(), format: format.name() }),
        }
    }

    /// Maps lines of `format` by `map`. `header` is the first line of a CSV file.
    ///
    /// # Errors
    /// [`MapError`] if the map names a field that the format does not have, or the format has no time.
    fn new(map: &Map, format: Format, header: &str) -> Result<Self, MapError> {
        let mut map = map.clone();
        let error = |map: &Map, line, reason| MapError { file: map.file.clone(), line, reason };
        let mut field_of_format = |name, time_format| vec![(map.fields.index(name, 1), time_format)];
        let source = match (format, format.time_field()) {
            _ if !map.time.is_empty() => TimeSource::Fields(map.time.clone()),
            (Format::Nginx, _) => {
                let mut field = |name| map.fields.index(name, 1);
                let time_local = field("time_local");
                TimeSource::Nginx { time_local, msec: field("msec"), request_time: field("request_time") }
            }
            (Format::Haproxy, Some(name)) => TimeSource::Fields(field_of_format(name, TimeFormat::CommonLog)),
            (_, Some(name)) => TimeSource::Fields(field_of_format(name, TimeFormat::Rfc3339)),
            (_, None) => {
                let format = format.name();
                let reason =
                    format!("'time' is missing: the format {format} does not say which field has it");
                return Err(error(&map, 1, reason));
            }
        };
        let reader = LineReader::new(format, map.fields.names(), header).map_err(|unknown| {
            let (name, line) = map.fields.get(unknown.index).unwrap_or_default();
            let known: Vec<&str> = unknown.known.iter().map(String::as_str).collect();
            let instead = match nearest_name(name, &known) {
                Some(field) => format!("did you mean '{field}'?"),
                None => format!("its fields are {}", known.join(", ")),
            };
            error(&map, line, format!("the format {} has no field '{name}'; {instead}", format.name()))
        })?;
        Ok(Self { reader, map: Some((Arc::new(map), source)) })
    }

    /// Lines are recorded requests, as `replay` reads them.
    fn of_recorded_requests() -> Self {
        let reader = LineReader::new(Format::Jsonl, std::iter::empty(), "");
        let reader = reader.expect("no field is wanted, so none is unknown");
        Self { reader, map: None }
    }

    pub fn format(&self) -> Format {
        self.reader.format()
    }

    /// The fields that the map uses, with their values in a line; `None` for all if the line cannot be read.
    pub fn used_fields(&self, line: &str) -> Vec<(String, Option<String>)> {
        let Some((map, _)) = &self.map else { return Vec::new() };
        let selected = self.reader.read_line(line).unwrap_or_default();
        let selected = map.spelled(selected.clone()).map_or(selected, |spelled| spelled.values);
        let value = |index: usize| selected.get(index).cloned().flatten().map(Cow::into_owned);
        map.fields.names().enumerate().map(|(index, name)| (name.to_owned(), value(index))).collect()
    }

    /// Reads the request of one line into `mapped`. After an error `mapped` has nothing of meaning.
    pub fn read_line(&self, line: &str, mapped: &mut MappedLine) -> Result<(), NotMapped> {
        let Some((map, time)) = &self.map else {
            let recorded = Recorded::parse(line).map_err(|error| LineFault::Request(error.to_string()))?;
            let Recorded { t_us, request } = recorded;
            *mapped = MappedLine { t_us, request, ..MappedLine::default() };
            return Ok(());
        };
        let spelled = map.spelled(self.reader.read_line(line)?)?;
        let selected = &spelled.values;
        if map.keep.as_ref().is_some_and(|keep| !spelled.meets(keep)) {
            return Err(NotMapped::NotKept);
        }
        mapped.t_us = time.read_time(selected, map)?;
        let hits = map.cost.units(selected)?;
        map.write_descriptors(&spelled, hits, mapped);
        if mapped.request.descriptors.is_empty() {
            return Err(NotMapped::NoDescriptor);
        }
        if mapped.request.domain != map.domain {
            mapped.request.domain.clone_from(&map.domain);
        }
        let holds = |condition: &Option<Expression>| condition.as_ref().is_some_and(|it| it.holds(selected));
        mapped.is_good = holds(&map.good);
        mapped.was_limited = holds(&map.was_limited);
        Ok(())
    }
}

impl Map {
    /// The values with the path of `normalize` in one spelling.
    ///
    /// # Errors
    /// [`LineFault::DotSegment`].
    pub(super) fn spelled<'l>(&self, mut values: Selected<'l>) -> Result<Spelled<'l>, LineFault> {
        let mut as_written = None;
        if let Some(FieldIndex(at)) = self.normalized
            && let Some(Some(value)) = values.get(at)
            && let Some(path) = path_of(value)
        {
            let spelling = one_spelling(path).ok_or(LineFault::DotSegment)?.into_owned();
            if spelling != path {
                let mut written = values.clone();
                written[at] = Some(Cow::Owned(path.to_owned()));
                as_written = Some(written);
            }
            values[at] = Some(Cow::Owned(spelling));
        }
        Ok(Spelled { values, as_written })
    }

    /// Replaces the descriptors by those of a line, each with this many hits, without those that lack a value.
    pub(super) fn write_descriptors(&self, line: &Spelled<'_>, hits: Option<u64>, mapped: &mut MappedLine) {
        // In reverse, so that each descriptor is taken for the same one of the next line.
        mapped.spare.extend(mapped.request.descriptors.drain(..).rev());
        mapped.sent = SentDescriptors::default();
        for (position, DescriptorRule { when, entries: rules }) in self.descriptors.iter().enumerate() {
            if when.as_ref().is_some_and(|when| !line.meets(when)) {
                continue;
            }
            let mut descriptor = mapped.spare.pop().unwrap_or_default();
            descriptor
                .entries
                .resize_with(rules.len(), || Entry { key: String::new(), value: String::new() });
            let mut written = 0;
            for (rule, entry) in rules.iter().zip(&mut descriptor.entries) {
                let Some(value) = rule.value(&line.values) else { break };
                entry.key.clone_from(&rule.key);
                entry.value.clear();
                entry.value.push_str(&value);
                written += 1;
            }
            descriptor.hits = hits;
            descriptor.is_whole_cost = true;
            if written == rules.len() {
                mapped.sent.add(position);
                mapped.request.descriptors.push(descriptor);
            } else {
                mapped.spare.push(descriptor);
            }
        }
    }
}

impl CostRule {
    /// The hits of each descriptor; `None` for one.
    pub(super) fn units(self, line: &Selected<'_>) -> Result<Option<u64>, LineFault> {
        match self {
            Self::Constant(1) => Ok(None),
            Self::Constant(units) => Ok(Some(units)),
            Self::Field { field, unit } => match line[field.0].as_deref() {
                None => Ok(None),
                Some(text) => {
                    let amount = whole_number(text);
                    let amount = amount.ok_or_else(|| LineFault::Cost(text.chars().take(60).collect()))?;
                    // 0 would only ask.
                    Ok(Some(amount.div_ceil(unit).max(1)))
                }
            },
        }
    }
}

impl TimeSource {
    fn read_time(&self, line: &Selected<'_>, map: &Map) -> Result<u64, LineFault> {
        let name = |field: &FieldIndex| map.fields.get(field.0).unwrap_or_default().0.to_owned();
        let text = |field: &FieldIndex| line[field.0].as_deref();
        match self {
            Self::Fields(fields) => {
                let found = fields.iter().find_map(|(field, format)| Some((text(field)?, format)));
                let (text, format) = found.ok_or_else(|| {
                    let names: Vec<String> = fields.iter().map(|(field, _)| name(field)).collect();
                    LineFault::NoTime(names.join(", "))
                })?;
                format.parse(text)
            }
            Self::Nginx { time_local, msec, request_time } => {
                let Some(msec) = text(msec) else {
                    let text = text(time_local).ok_or_else(|| LineFault::NoTime(name(time_local)))?;
                    return TimeFormat::CommonLog.parse(text);
                };
                let end = TimeFormat::SECONDS.parse(msec)?;
                let took = text(request_time).map_or(Ok(0), |text| TimeFormat::SECONDS.parse(text))?;
                Ok(end.saturating_sub(took))
            }
        }
    }
}
