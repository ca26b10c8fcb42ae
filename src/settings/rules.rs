//! `rules.*`: where the rules are and how they are loaded.

use std::path::PathBuf;

use super::parsers::{Parser, flag};
use super::reader::Reader;
use super::xds::xds_from_reader;
use crate::xds::XdsOptions;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `rules.path`: a file, or a directory of files. Relative to the directory the process was started in.
    pub path: PathBuf,
    /// `rules.merge_domains`: whether several files may add to one domain.
    pub merge_domains: bool,
    /// `rules.watch`: whether changes of files take effect while the process runs.
    pub watch: bool,
    /// `rules.require_domain`: whether the process is ready only while its rules have at least one domain.
    pub require_domain: bool,
    /// `rules.xds`: the server that has the rules; `None`: they are in files.
    pub xds: Option<XdsOptions>,
}

impl Rules {
    pub(super) fn from_reader(reader: &mut Reader) -> Self {
        let path = Parser::new("the path of a file or directory", |text| {
            (!text.is_empty()).then(|| PathBuf::from(text))
        });
        let path_origin = reader.origin("rules.path");
        Self {
            path: reader.take("rules.path", "config/rules", path),
            merge_domains: reader.take("rules.merge_domains", "false", flag()),
            watch: reader.take("rules.watch", "true", flag()),
            require_domain: reader.take("rules.require_domain", "false", flag()),
            xds: xds_from_reader(reader, path_origin),
        }
    }
}
