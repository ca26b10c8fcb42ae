//! Reloads rule files after a change.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use base::{Change, Watched};

use super::load::{LoadOptions, LoadedRules, compile};
use super::problem::Problems;
use super::source::Source;

/// Loads rules, and reloads them after a change.
#[derive(Debug)]
pub struct Reloader {
    files: Watched<Source>,
    options: LoadOptions,
    /// The files whose rules are active.
    in_force: Vec<Arc<str>>,
    /// The digest of the files last read.
    digest: String,
}

impl Reloader {
    /// Loads the rules at `paths` for the first time, like [`load`](super::load()). The files can be checked for
    /// changes even if this fails.
    pub fn start(paths: &[PathBuf], options: LoadOptions) -> (Self, Result<LoadedRules, Problems>) {
        let source = Source::new(paths, options.directory);
        let (files, (digest, loaded)) = Watched::start(source, |source| {
            let sources = source.read_files();
            (sources.digest(), compile(&sources, &options, &[]))
        });
        let in_force = loaded.as_ref().map(|loaded| loaded.names.clone()).unwrap_or_default();
        (Self { files, options, in_force, digest }, loaded)
    }

    /// The digest of the files last read, whether or not they are valid.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// Checks the files at `now`, and loads them if they changed before the last check and not since. Blocks on the
    /// file system; thousands of rules take long to load.
    pub fn check_files(&mut self, now: Instant) -> Change<Result<LoadedRules, Problems>> {
        let Self { files, options, in_force, digest } = self;
        let change = files.check(now, |source| {
            let sources = source.read_files();
            *digest = sources.digest();
            compile(&sources, options, in_force)
        });
        if let Change::Loaded(Ok(loaded)) = &change {
            in_force.clone_from(&loaded.names);
        }
        change
    }
}
