//! `log.*`: which lines the log holds, and their format.

use super::parsers::{Parser, one_of};
use super::reader::Reader;
use crate::telemetry::logging::{Filter, Format};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// `log.level`: one level for the process, or levels by module.
    pub level: Filter,
    /// `log.format`
    pub format: Format,
}

impl Log {
    pub(super) fn from_reader(reader: &mut Reader) -> Self {
        let level = Parser::new(
            "one of off, error, warn, info, debug, trace, or levels by module like info,ratelimitd=debug",
            Filter::parse,
        );
        let formats =
            [("text", Format::Text), ("json", Format::Json), ("envoy_ratelimit", Format::EnvoyRatelimit)];
        Self {
            level: reader.take("log.level", "info", level),
            format: reader.take("log.format", "text", one_of(formats)),
        }
    }
}
