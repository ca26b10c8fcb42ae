//! `rules.*`: where the rules are and how they are loaded.

use std::path::PathBuf;

use super::parsers::{Parser, flag, one_of};
use super::reader::Reader;
use super::xds::xds_from_reader;
use crate::xds::XdsOptions;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `rules.path`: a file, or a directory of files. Relative to the directory the process was started in.
    pub path: PathBuf,
    /// `rules.directory`
    pub directory: RuleDirectory,
    /// `rules.dot_files`: whether files are read whose names begin with one dot.
    pub dot_files: bool,
    /// `rules.merge_domains`: whether several files may add to one domain.
    pub merge_domains: bool,
    /// `rules.watch`: whether changes of files take effect while the process runs.
    pub watch: bool,
    /// `rules.require_domain`: whether the process is ready only while its rules have at least one domain.
    pub require_domain: bool,
    /// `rules.xds`: the server that has the rules; `None`: they are in files.
    pub xds: Option<XdsOptions>,
}

/// Which files of a directory are read, and what follows from a directory without usable rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleDirectory {
    /// `*.yaml` and `*.yml`. The process ends if the first rules are not valid, or if there are none.
    YamlFiles,
    /// Every file that looks like rules. The process starts without rules, not ready, if the first rules are not valid;
    /// an empty directory is a valid one.
    AnyFiles,
    /// As [`AnyFiles`](Self::AnyFiles), and files `NAME.*` beside the directory `NAME`.
    AnyFilesAndBeside,
    /// As [`AnyFilesAndBeside`](Self::AnyFilesAndBeside), and a missing directory is an empty one.
    Optional,
}

impl Rules {
    pub(super) fn from_reader(reader: &mut Reader) -> Self {
        let path = Parser::new("the path of a file or directory", |text| {
            (!text.is_empty()).then(|| PathBuf::from(text))
        });
        let directories = [
            ("yaml_files", RuleDirectory::YamlFiles),
            ("any_files", RuleDirectory::AnyFiles),
            ("any_files_and_beside", RuleDirectory::AnyFilesAndBeside),
            ("optional", RuleDirectory::Optional),
        ];
        Self {
            path: reader.take("rules.path", "config/rules", path),
            directory: reader.take("rules.directory", "yaml_files", one_of(directories)),
            dot_files: reader.take("rules.dot_files", "false", flag()),
            merge_domains: reader.take("rules.merge_domains", "false", flag()),
            watch: reader.take("rules.watch", "true", flag()),
            require_domain: reader.take("rules.require_domain", "false", flag()),
            xds: xds_from_reader(reader),
        }
    }
}
