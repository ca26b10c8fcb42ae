//! `log.*`: what is logged and how.

use crate::telemetry::logging::{Filter, Format};

use super::kinds::{Kind, one_of};
use super::reader::Reader;

/// What is logged and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// `log.level`: a level for everything, or levels by module.
    pub level: Filter,
    /// `log.format`
    pub format: Format,
}

impl Log {
    pub(super) fn read(reader: &mut Reader) -> Self {
        let level = Kind::new(
            "one of off, error, warn, info, debug, trace, or levels by module like info,ratelimitd=debug",
            Filter::parse,
        );
        let formats = [("text", Format::Text), ("json", Format::Json)];
        Self {
            level: reader.read("log.level", "info", level),
            format: reader.read("log.format", "text", one_of(formats)),
        }
    }
}
