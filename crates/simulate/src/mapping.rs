//! Turns a line of a log into a request, by the format of its file and a map.

use std::sync::Arc;

use map::{Became, FieldIndex, Map, MapError, MappedLine, Selected, TimeField, TimeFormat, ValueFault};
use rules::nearest_name;

use crate::log::{Block, Format, LineFault, LineReader, MAX_LINE_BYTES, lines, recognize};
use crate::replay::Recorded;

/// Lines of a file from which its format is recognized.
const FIRST_LINES: usize = 100;

/// Why the lines of a file cannot become requests.
#[derive(Debug, thiserror::Error)]
pub enum MappingError {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error("{0}: cannot recognize the format from its first lines; name it with --format")]
    UnknownFormat(String),
    #[error("{name}: lines of the format {format} need a map: --map FILE says which descriptors they become")]
    NoMap { name: String, format: &'static str },
}

/// Where the time of a request comes from.
#[derive(Clone, Debug)]
enum TimeSource {
    /// The first of these fields that the line has.
    Fields(Vec<TimeField>),
    /// The time at which nginx wrote the line, with and without milliseconds, and the duration of the request.
    Nginx { time_local: FieldIndex, msec: FieldIndex, request_time: FieldIndex },
}

/// Maps the lines of one file.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// `None` for recorded requests.
    map: Option<(LineReader, Map, TimeSource)>,
}

/// The mapping of one file, determined by its first block with lines.
pub(crate) struct FileMapping<'a> {
    pub name: &'a str,
    /// `None`: to be recognized.
    pub format: Option<Format>,
    pub map: Option<&'a Map>,
    pub decided: Option<Arc<Mapping>>,
}

impl FileMapping<'_> {
    /// Returns the mapping for the next block; `None` while the file has had only blank lines. Removes the header from
    /// the first block.
    ///
    /// # Errors
    /// [`MappingError`] if the format is unknown, or the map does not fit it.
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
            (Format::Jsonl, _) => Ok(Some(Self { map: None })),
            (_, Some(map)) => Ok(Some(Self::new(map, format, header)?)),
            (_, None) => Err(MappingError::NoMap { name: name.to_owned(), format: format.into_str() }),
        }
    }

    /// Maps lines of `format` by `map`. `header`: the first line of a CSV file.
    ///
    /// # Errors
    /// [`MapError`] if the map uses a field that the format does not have, or the format has no time.
    fn new(map: &Map, format: Format, header: &str) -> Result<Self, MapError> {
        let mut map = map.clone();
        let source = match (format, format.time_field()) {
            _ if !map.time_fields().is_empty() => TimeSource::Fields(map.time_fields().to_vec()),
            (Format::Nginx, _) => TimeSource::Nginx {
                time_local: map.want("time_local"),
                msec: map.want("msec"),
                request_time: map.want("request_time"),
            },
            (Format::Haproxy, Some(name)) => {
                TimeSource::Fields(vec![(map.want(name), TimeFormat::CommonLog)])
            }
            (_, Some(name)) => TimeSource::Fields(vec![(map.want(name), TimeFormat::Rfc3339)]),
            (_, None) => {
                let format = format.into_str();
                let reason =
                    format!("'time' is missing: the format {format} does not say which field has it");
                return Err(map.mistake(None, reason));
            }
        };
        let reader = LineReader::new(format, map.field_names(), header).map_err(|unknown| {
            let field = FieldIndex(unknown.index);
            let name = map.field_name(field);
            let known: Vec<&str> = unknown.known.iter().map(String::as_str).collect();
            let instead = match nearest_name(name, &known) {
                Some(field) => format!("did you mean '{field}'?"),
                None => format!("its fields are {}", known.join(", ")),
            };
            let reason = format!("the format {} has no field '{name}'; {instead}", format.into_str());
            map.mistake(Some(field), reason)
        })?;
        Ok(Self { map: Some((reader, map, source)) })
    }

    pub fn format(&self) -> Format {
        self.map.as_ref().map_or(Format::Jsonl, |(reader, ..)| reader.format())
    }

    /// The fields that the map uses, with their values in a line; `None` for all if the line cannot be read.
    pub fn used_fields(&self, line: &str) -> Vec<(String, Option<String>)> {
        let Some((reader, map, _)) = &self.map else { return Vec::new() };
        map.used_fields(reader.read_line(line).unwrap_or_default())
    }

    /// Reads the request of one line into `mapped`, which is meaningless unless a request is returned.
    ///
    /// # Errors
    /// [`LineFault`] if the line cannot be read.
    pub fn read_line(&self, line: &[u8], mapped: &mut MappedLine) -> Result<Became, LineFault> {
        if line.len() > MAX_LINE_BYTES {
            return Err(LineFault::TooLong(MAX_LINE_BYTES));
        }
        let line = std::str::from_utf8(line).map_err(|error| LineFault::NotUtf8(error.valid_up_to()))?;
        let Some((reader, map, time)) = &self.map else {
            let recorded = Recorded::parse(line).map_err(|error| LineFault::Request(error.to_string()))?;
            let Recorded { t_us, request } = recorded;
            *mapped = MappedLine::default();
            (mapped.t_us, mapped.request) = (t_us, request);
            return Ok(Became::Request);
        };
        let values = reader.read_line(line)?;
        Ok(map.read_values(values, |values| time.read_time(values, map), mapped)?)
    }
}

impl TimeSource {
    fn read_time(&self, line: &Selected<'_>, map: &Map) -> Result<u64, ValueFault> {
        let name = |field: &FieldIndex| map.field_name(*field).to_owned();
        let text = |field: &FieldIndex| line[field.0].as_deref();
        match self {
            Self::Fields(fields) => {
                let found = fields.iter().find_map(|(field, format)| Some((text(field)?, format)));
                let (text, format) = found.ok_or_else(|| {
                    let names: Vec<String> = fields.iter().map(|(field, _)| name(field)).collect();
                    ValueFault::NoTime(names.join(", "))
                })?;
                format.parse(text)
            }
            Self::Nginx { time_local, msec, request_time } => {
                let Some(msec) = text(msec) else {
                    let text = text(time_local).ok_or_else(|| ValueFault::NoTime(name(time_local)))?;
                    return TimeFormat::CommonLog.parse(text);
                };
                let end = TimeFormat::SECONDS.parse(msec)?;
                let took = text(request_time).map_or(Ok(0), |text| TimeFormat::SECONDS.parse(text))?;
                Ok(end.saturating_sub(took))
            }
        }
    }
}
