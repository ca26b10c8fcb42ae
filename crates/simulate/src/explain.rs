//! Explains what becomes of one line of a log.

use std::path::Path;
use std::sync::Arc;

use engine::Request;
use map::{Became, Map, MappedLine};

use super::log::{BlockReader, Format, Input, InputError, lines};
use super::mapping::{FileMapping, Mapping, MappingError};

#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error(transparent)]
    Open(#[from] InputError),
    #[error(transparent)]
    Mapping(#[from] MappingError),
    #[error("{0}")]
    Read(String),
}

/// A line, its fields, and the resulting request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExplainedLine {
    pub text: String,
    pub format: Format,
    /// The fields that the map uses.
    pub fields: Vec<(String, Option<String>)>,
    /// The request with its time (microseconds since the epoch), or why there is none.
    pub request: Result<(u64, Request), String>,
    /// `good` and `was_limited` of the map.
    pub is_good: bool,
    pub was_limited: bool,
}

/// Explains the line with this number in a file.
///
/// # Errors
/// [`ExplainError`] if the file, the map or the line cannot be read.
pub fn explain_line(
    path: &Path,
    number: u64,
    format: Option<Format>,
    map: Option<&Map>,
) -> Result<ExplainedLine, ExplainError> {
    let input = Input::open(path, &Arc::default())?;
    let name = input.name.clone();
    let failed = |reason: &str| ExplainError::Read(format!("{name}: {reason}"));
    let mut reader = BlockReader::new(input.stream);
    let mut of_file = FileMapping { name: &name, format, map, decided: None };
    while let Some(mut block) = reader.next_block().map_err(|error| failed(&error.to_string()))? {
        let Some(mapping) = of_file.of_block(&mut block)? else { continue };
        if let Some((_, line)) = lines(&block).find(|(found, _)| *found == number) {
            return Ok(explained(&mapping, line));
        }
    }
    Err(failed(&format!("line {number} does not exist, is blank or is the header")))
}

fn explained(mapping: &Mapping, line: &[u8]) -> ExplainedLine {
    let text = String::from_utf8_lossy(line).into_owned();
    let mut mapped = MappedLine::default();
    let request = match mapping.read_line(line, &mut mapped) {
        Ok(Became::Request) => Ok((mapped.t_us, mapped.request)),
        Ok(Became::NotKept) => Err("the map's `keep` leaves the line out".to_owned()),
        Ok(Became::NoDescriptor) => Err("each descriptor of the map has an entry without a value".to_owned()),
        Err(fault) => Err(format!("cannot read the line: {fault}")),
    };
    ExplainedLine {
        fields: mapping.used_fields(&text),
        format: mapping.format(),
        is_good: mapped.is_good,
        was_limited: mapped.was_limited,
        request,
        text,
    }
}
