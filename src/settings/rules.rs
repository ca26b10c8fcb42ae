//! `rules.*`: where the rule files are and how they are loaded.

use std::path::PathBuf;

use super::parsers::{Parser, flag};
use super::reader::Reader;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `rules.path`: a file, or a directory of files. Relative to the directory the process was started in.
    pub path: PathBuf,
    /// `rules.merge_domains`: whether several files may add to one domain.
    pub merge_domains: bool,
    /// `rules.watch`: whether changes take effect while the process runs.
    pub watch: bool,
}

impl Rules {
    pub(super) fn from_reader(reader: &mut Reader) -> Self {
        let path = Parser::new("the path of a file or directory", |text| {
            (!text.is_empty()).then(|| PathBuf::from(text))
        });
        Self {
            path: reader.take("rules.path", "config/rules", path),
            merge_domains: reader.take("rules.merge_domains", "false", flag()),
            watch: reader.take("rules.watch", "true", flag()),
        }
    }
}
