//! The layouts of text formats: their columns in order.

use smallvec::SmallVec;

use super::columns::{Columns, split_request_line};
use super::values::LineFault;

/// One column of a line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Column {
    Bare(&'static str),
    Bracketed(&'static str),
    Quoted(&'static str),
    /// `"METHOD PATH PROTOCOL"`: three fields.
    RequestLine,
    /// As [`Column::Bare`], at the end of the line, and may be missing.
    Optional(&'static str),
}

/// The columns of a text format.
#[derive(Debug)]
pub(super) struct TextLayout {
    pub name: &'static str,
    pub columns: &'static [Column],
}

use Column::{Bare, Bracketed, Optional, Quoted, RequestLine};

/// Envoy's default format.
pub(super) const ENVOY: TextLayout = TextLayout {
    name: "envoy",
    columns: &[
        Bracketed("start_time"),
        RequestLine,
        Bare("code"),
        Bare("flags"),
        Bare("bytes_received"),
        Bare("bytes_sent"),
        Bare("duration"),
        Bare("upstream_service_time"),
        Quoted("x-forwarded-for"),
        Quoted("user-agent"),
        Quoted("x-request-id"),
        Quoted("authority"),
        Quoted("upstream_host"),
    ],
};

/// Istio's default format.
pub(super) const ISTIO: TextLayout = TextLayout {
    name: "istio",
    columns: &[
        Bracketed("start_time"),
        RequestLine,
        Bare("code"),
        Bare("flags"),
        Bare("response_code_details"),
        Bare("connection_termination_details"),
        Quoted("upstream_transport_failure_reason"),
        Bare("bytes_received"),
        Bare("bytes_sent"),
        Bare("duration"),
        Bare("upstream_service_time"),
        Quoted("x-forwarded-for"),
        Quoted("user-agent"),
        Quoted("x-request-id"),
        Quoted("authority"),
        Quoted("upstream_host"),
        Bare("upstream_cluster"),
        Bare("upstream_local_address"),
        Bare("downstream_local_address"),
        Bare("downstream_remote_address"),
        Bare("requested_server_name"),
        Bare("route_name"),
    ],
};

/// The format `combined` of nginx, with two columns that operators add.
pub(super) const NGINX: TextLayout = TextLayout {
    name: "nginx",
    columns: &[
        Bare("remote_addr"),
        Bare("identity"),
        Bare("remote_user"),
        Bracketed("time_local"),
        RequestLine,
        Bare("code"),
        Bare("bytes_sent"),
        Quoted("referer"),
        Quoted("user-agent"),
        Optional("msec"),
        Optional("request_time"),
    ],
};

/// The values of all fields of a line.
pub(super) type TextValues<'l> = SmallVec<[&'l str; 32]>;

impl TextLayout {
    /// The names of the fields, in the order in which [`TextLayout::split`] returns their values.
    pub fn fields(&self) -> Vec<&'static str> {
        let names = self.columns.iter().flat_map(|column| match column {
            Bare(name) | Bracketed(name) | Quoted(name) | Optional(name) => vec![*name],
            RequestLine => vec!["method", "path", "protocol"],
        });
        names.collect()
    }

    /// Replaces `values` by the values of the fields; a missing optional one is empty.
    pub fn split<'l>(&self, line: &'l str, values: &mut TextValues<'l>) -> Result<(), LineFault> {
        values.clear();
        let mut columns = Columns::new(line);
        for column in self.columns {
            let at = columns.position();
            let missing = |column| LineFault::Column { format: self.name, column, bytes: at };
            match column {
                Bare(name) => values.push(columns.bare().ok_or_else(|| missing(name))?),
                Bracketed(name) => values.push(columns.bracketed().ok_or_else(|| missing(name))?),
                Quoted(name) => values.push(columns.quoted().ok_or_else(|| missing(name))?),
                Optional(_) => values.push(columns.bare().unwrap_or_default()),
                RequestLine => {
                    let line = columns.quoted().ok_or_else(|| missing("request line in quotes"))?;
                    let (method, path, protocol) = split_request_line(line);
                    values.extend([method, path, protocol]);
                }
            }
        }
        if !columns.is_empty() {
            let bytes = columns.position();
            return Err(LineFault::Column { format: self.name, column: "end of the line", bytes });
        }
        Ok(())
    }
}
