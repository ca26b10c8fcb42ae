//! Notices that rule files changed and loads them again.
//!
//! It looks, by default four times a second, at what the file system shows of the files. Notifications (inotify and
//! its kin) would be quicker on a local disk, but they differ for renames, swapped links, overlays and network file
//! systems; a look at names, inodes and times sees all of those alike.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::load::{LoadOptions, Loaded, compile};
use super::problem::Problems;
use super::source::{Files, Fingerprint, Source};

/// How often [`watch`] looks: a change is in force after at most two looks and the time to load it.
pub const CHECK_EVERY: Duration = Duration::from_millis(250);

/// After that many looks in a row at files that keep changing, they are loaded as they are.
const PATIENCE: u32 = 4;

/// What a look at the files found.
#[derive(Debug)]
pub enum Change {
    /// Nothing new.
    Unchanged,
    /// The files changed since the last look: somebody may still be writing. The next look loads them if they then
    /// stand still.
    Settling,
    /// New rules.
    Loaded(Box<Loaded>),
    /// The files changed and cannot be used. Said once for each state of the files.
    Bad(Problems),
}

/// Loads rules, and loads them again when their files change.
#[derive(Debug)]
pub struct Reloader {
    source: Source,
    options: LoadOptions,
    /// How often [`watch`] looks.
    pub check_every: Duration,
    /// As the last look found the files.
    seen: Fingerprint,
    /// Looks in a row that found them changed.
    restless: u32,
    /// What was loaded last, and the fingerprint it had; `None` right after the start, when a change in the same tick
    /// of the file system's clock may have gone unseen.
    loaded: (Option<Fingerprint>, Files),
}

impl Reloader {
    /// Loads the rules at `paths` for the first time.
    ///
    /// # Errors
    /// As [`load`](super::load()): there are then no rules to go on with.
    pub fn start(paths: &[PathBuf], options: LoadOptions) -> Result<(Self, Loaded), Problems> {
        let source = Source::new(paths);
        // Taken before the files are read, so that whatever changes from here on is noticed.
        let seen = source.fingerprint();
        let files = source.read();
        let loaded = compile(&files, options)?;
        let reloader =
            Self { source, options, check_every: CHECK_EVERY, seen, restless: 0, loaded: (None, files) };
        Ok((reloader, loaded))
    }

    /// Looks at the files and loads them if they changed and stand still again. Blocks for as long as the file system
    /// takes.
    pub fn check(&mut self) -> Change {
        let now = self.source.fingerprint();
        if now != self.seen && self.restless < PATIENCE {
            self.seen = now;
            self.restless += 1;
            return Change::Settling;
        }
        self.restless = 0;
        self.seen = now;
        if self.loaded.0.as_ref() == Some(&self.seen) {
            return Change::Unchanged;
        }
        let files = self.source.read();
        let is_same = files == self.loaded.1;
        self.loaded = (Some(self.seen.clone()), files);
        if is_same {
            return Change::Unchanged;
        }
        match compile(&self.loaded.1, self.options) {
            Ok(loaded) => Change::Loaded(Box::new(loaded)),
            Err(problems) => Change::Bad(problems),
        }
    }
}

/// Looks at the files every [`Reloader::check_every`] until `shutdown`, and hands on whatever changed: new rules, or
/// why there are none, in which case the old ones are to stay in force.
///
/// # Panics
/// When loading does.
pub async fn watch(
    mut reloader: Reloader,
    mut on_change: impl FnMut(Result<Loaded, Problems>),
    shutdown: impl Future<Output = ()>,
) {
    let mut ticks = tokio::time::interval(reloader.check_every.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    tokio::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => return,
            _ = ticks.tick() => {}
        }
        let look = move || {
            let change = reloader.check();
            (reloader, change)
        };
        let change;
        (reloader, change) = match tokio::task::spawn_blocking(look).await {
            Ok(found) => found,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is going away, and so is whoever would be told.
                Err(_) => return,
            },
        };
        match change {
            Change::Unchanged | Change::Settling => {}
            Change::Loaded(loaded) => on_change(Ok(*loaded)),
            Change::Bad(problems) => on_change(Err(problems)),
        }
    }
}
