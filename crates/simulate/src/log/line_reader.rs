//! Reads a line into the values of the fields that a map wants.

use std::borrow::Cow;

use map::Selected;
use smallvec::smallvec;

use super::csv::split_csv;
use super::fault::LineFault;
use super::format::Format;
use super::haproxy::split_haproxy;
use super::json::read_object;
use super::text_layout::{ENVOY, ISTIO, NGINX, TextLayout};

/// A field that a format does not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownField {
    /// Index among the wanted fields.
    pub index: usize,
    pub known: Vec<String>,
}

/// Reads the lines of one file.
#[derive(Clone, Debug)]
pub(crate) struct LineReader {
    format: Format,
    /// For formats with columns: the columns of the wanted fields. For JSON: empty.
    columns: Vec<usize>,
    /// For CSV: the number of columns in the header.
    width: usize,
    /// For JSON: the wanted fields' names in the lines, then those of `literal`.
    names: Vec<String>,
    /// For JSON: wanted fields that lines may also have under the map's name for them, each with the index of this name
    /// in `names`.
    literal: Vec<(usize, usize)>,
}

impl LineReader {
    /// Creates a reader of the fields `wanted`. `header`: the first line of a CSV file.
    ///
    /// # Errors
    /// [`UnknownField`] for the first field that the format does not have.
    pub fn new<'w>(
        format: Format,
        wanted: impl Iterator<Item = &'w str>,
        header: &str,
    ) -> Result<Self, UnknownField> {
        let mut known: Option<Vec<String>> =
            format.fields().map(|fields| fields.into_iter().map(str::to_owned).collect());
        if format == Format::Csv {
            // An invalid CSV header has no names, so the first wanted one is unknown.
            let names = split_csv(header).unwrap_or_default();
            known = Some(names.into_iter().map(|name| name.trim().to_owned()).collect());
        }
        let width = known.as_ref().map_or(0, Vec::len);
        let mut reader = Self { format, columns: Vec::new(), width, names: Vec::new(), literal: Vec::new() };
        let mut literal = Vec::new();
        for (index, name) in wanted.enumerate() {
            match &known {
                None => {
                    let own_name = format.own_name(name);
                    literal.extend((own_name != name).then(|| (index, name.to_owned())));
                    reader.names.push(own_name.to_owned());
                }
                Some(known) => match known.iter().position(|known| known == name) {
                    Some(column) => reader.columns.push(column),
                    None => return Err(UnknownField { index, known: known.clone() }),
                },
            }
        }
        for (wanted, name) in literal {
            reader.literal.push((wanted, reader.names.len()));
            reader.names.push(name);
        }
        Ok(reader)
    }

    pub fn format(&self) -> Format {
        self.format
    }

    /// The values of the wanted fields of a line.
    ///
    /// # Errors
    /// [`LineFault`] if the line does not have the format.
    pub fn read_line<'l>(&self, line: &'l str) -> Result<Selected<'l>, LineFault> {
        match self.format {
            Format::Envoy => self.read_text(&ENVOY, line),
            Format::Istio => self.read_text(&ISTIO, line),
            Format::Nginx => self.read_text(&NGINX, line),
            Format::Haproxy => {
                let values = split_haproxy(line)?;
                Ok(self.columns.iter().map(|column| present(values[*column])).collect())
            }
            Format::Csv => {
                let mut values = split_csv(line)?;
                if values.len() != self.width {
                    return Err(LineFault::Csv("it does not have as many columns as the header"));
                }
                let values = self.columns.iter().map(|column| std::mem::take(&mut values[*column]));
                Ok(values
                    .map(|value| Some(value).filter(|value| !value.is_empty() && value != "-"))
                    .collect())
            }
            Format::EnvoyJson | Format::Json | Format::Jsonl => {
                let mut values = smallvec![None; self.names.len()];
                read_object(line, &self.names, &mut values)?;
                for (wanted, literal) in &self.literal {
                    values[*wanted] = values[*wanted].take().or_else(|| values[*literal].take());
                }
                values.truncate(self.names.len() - self.literal.len());
                Ok(values)
            }
        }
    }

    fn read_text<'l>(&self, layout: &TextLayout, line: &'l str) -> Result<Selected<'l>, LineFault> {
        let values = layout.split(line)?;
        Ok(self.columns.iter().map(|column| present(values[*column])).collect())
    }
}

/// The text formats write `-` for a missing value.
fn present(value: &str) -> Option<Cow<'_, str>> {
    (value != "-" && !value.is_empty()).then_some(Cow::Borrowed(value))
}
