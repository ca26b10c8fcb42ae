//! Reloads files when they change: rules, exceptions, maps and certificates. Call [`Watched::check`] at intervals.
//!
//! Compares names, inodes and times instead of using inotify, which would be faster on a local disk but behaves
//! differently for renames, swapped links, overlays and network file systems. A check that finds no change starts no
//! thread, except the first one, which compares contents.

use std::collections::hash_map::DefaultHasher;
use std::convert::Infallible;
use std::fmt;
use std::fs;
use std::future::pending;
use std::hash::Hasher as _;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::file::open_file;
use crate::slow_load::told_if_slow;

/// A change takes effect with the second check after it: within half a second, plus the time to load the files.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// Files that keep changing for this long are reported once. They are still not loaded: half a rule file is usually
/// valid YAML, and would activate some rules without the others.
const REPORT_AFTER: Duration = Duration::from_secs(5);

/// The result of one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<T> {
    /// The files are those loaded last.
    Unchanged,
    /// The files changed since the last check, so a writer may not have finished. The first check without a further
    /// change loads them, however long that takes. `is_overdue` is `true` once: when they have kept changing for five
    /// seconds.
    Unsettled { is_overdue: bool },
    /// The files changed and were loaded. Each state is loaded once, even if it has errors.
    Loaded(T),
}

/// If a file cannot be read, for example for lack of file descriptors, all are read again after this time, although
/// none shows a change.
const RETRY_AFTER: Duration = Duration::from_secs(10);

/// Which files belong together.
pub trait FindFiles {
    /// What the search finds besides paths. If it changes, the files count as changed.
    type Notes: Clone + fmt::Debug + PartialEq;

    fn find_files(&self) -> (Vec<PathBuf>, Self::Notes);

    /// Maximum size of a file; a larger one is an error of that file.
    fn max_file_bytes(&self) -> u64 {
        1 << 20
    }
}

impl FindFiles for PathBuf {
    type Notes = ();

    fn find_files(&self) -> (Vec<PathBuf>, ()) {
        (vec![self.clone()], ())
    }
}

#[derive(Debug)]
pub struct Watched<F: FindFiles> {
    files: F,
    /// As of the last check.
    last_seen: FileStates<F::Notes>,
    /// `None` if the last check found no change.
    unsettled: Option<Unsettled>,
    /// The state last loaded. `None` at startup: a change within one tick of the file system's clock does not show in
    /// the state, so the first check compares contents.
    last_loaded: Option<FileStates<F::Notes>>,
    /// When to read the files again because one could not be read.
    retry_at: Option<Instant>,
    /// The content last loaded.
    content: ContentPrint<F::Notes>,
}

/// What the file system shows without reading the files: paths, and for each its resolved path, inode, length and
/// times. Changes if a symbolic link is swapped, a file is replaced by a rename, written in place, added or removed.
#[derive(Debug, PartialEq)]
struct FileStates<N> {
    files: Vec<(PathBuf, Result<FileStamp, String>)>,
    notes: N,
}

#[derive(Debug, PartialEq)]
struct FileStamp {
    resolved: PathBuf,
    device: u64,
    inode: u64,
    length: u64,
    modified_ns: (i64, i64),
    changed_ns: (i64, i64),
}

/// The files, each with a hash of its bytes or, if it cannot be read, the error message.
#[derive(Debug, PartialEq)]
struct ContentPrint<N> {
    files: Vec<(PathBuf, Result<u64, String>)>,
    notes: N,
}

/// A series of checks that each found a change.
#[derive(Clone, Copy, Debug)]
struct Unsettled {
    since: Instant,
    is_reported: bool,
}

impl<F: FindFiles> Watched<F> {
    /// Loads the files for the first time, whatever the result. Blocks on the file system.
    pub fn start<T>(files: F, load: impl FnOnce(&F) -> T) -> (Self, T) {
        // Taken before the files are loaded, so that a change during the load is noticed.
        let last_seen = FileStates::of_files(&files);
        let (content, loaded) = told_if_slow(&last_seen.paths(), || {
            let content = last_seen.read_content(files.max_file_bytes());
            (content, load(&files))
        });
        (Self { files, last_seen, unsettled: None, last_loaded: None, retry_at: None, content }, loaded)
    }

    /// Checks the files at `now`, and loads them if they changed before the last check and not since. Drops the result
    /// if the files changed during the load. Blocks on the file system.
    pub fn check<T>(&mut self, now: Instant, load: impl FnOnce(&F) -> T) -> Change<T> {
        let state = FileStates::of_files(&self.files);
        if state != self.last_seen {
            return self.wait_for_writer(state, now);
        }
        if self.last_loaded.as_ref() == Some(&state) && self.retry_at.is_none_or(|retry_at| now < retry_at) {
            self.unsettled = None;
            return Change::Unchanged;
        }
        let (content, loaded) = told_if_slow(&state.paths(), || {
            let content = state.read_content(self.files.max_file_bytes());
            let loaded = (content != self.content).then(|| load(&self.files));
            (content, loaded)
        });
        let state = FileStates::of_files(&self.files);
        if state != self.last_seen {
            return self.wait_for_writer(state, now);
        }
        self.unsettled = None;
        self.retry_at = (!content.is_read(&state)).then(|| now + RETRY_AFTER);
        self.last_loaded = Some(state);
        self.content = content;
        loaded.map_or(Change::Unchanged, Change::Loaded)
    }

    fn wait_for_writer<T>(&mut self, state: FileStates<F::Notes>, now: Instant) -> Change<T> {
        self.last_seen = state;
        let unsettled = self.unsettled.get_or_insert(Unsettled { since: now, is_reported: false });
        let is_overdue = !unsettled.is_reported && now.duration_since(unsettled.since) >= REPORT_AFTER;
        unsettled.is_reported |= is_overdue;
        Change::Unsettled { is_overdue }
    }
}

impl<N: Clone> FileStates<N> {
    fn of_files<F: FindFiles<Notes = N>>(files: &F) -> Self {
        let (paths, notes) = files.find_files();
        let state = |path: PathBuf| {
            let stamp = FileStamp::of_file(&path).map_err(|error| error.to_string());
            (path, stamp)
        };
        Self { files: paths.into_iter().map(state).collect(), notes }
    }

    fn paths(&self) -> Vec<&Path> {
        self.files.iter().map(|(path, _)| path.as_path()).collect()
    }

    fn read_content(&self, max_file_bytes: u64) -> ContentPrint<N> {
        let print = |path: &Path| {
            let content = hash_file(path, max_file_bytes).map_err(|error| error.to_string());
            (path.to_owned(), content)
        };
        ContentPrint { files: self.paths().into_iter().map(print).collect(), notes: self.notes.clone() }
    }
}

impl<N> ContentPrint<N> {
    /// `true` if every file that the file system shows could be read.
    fn is_read(&self, states: &FileStates<N>) -> bool {
        let mut files = self.files.iter().zip(&states.files);
        files.all(|((_, content), (_, stamp))| content.is_ok() || stamp.is_err())
    }
}

impl FileStamp {
    fn of_file(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self {
            resolved: fs::canonicalize(path)?,
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified_ns: (metadata.mtime(), metadata.mtime_nsec()),
            changed_ns: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }
}

fn hash_file(path: &Path, max_bytes: u64) -> io::Result<u64> {
    // The file may grow while it is read.
    let mut stream = open_file(path, max_bytes)?.take(max_bytes);
    let mut hasher = DefaultHasher::new();
    let mut chunk = vec![0; 256 << 10];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(bytes) => hasher.write(&chunk[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Runs `check` immediately and then four times a second, on a thread that may block: a file system may hang.
pub async fn check_forever(mut check: impl FnMut() + Send + 'static) -> Infallible {
    check_until(move || {
        check();
        None
    })
    .await
}

/// Like [`check_forever`], until `check` returns a result.
pub async fn check_until<T, C>(mut check: C) -> T
where
    T: Send + 'static,
    C: FnMut() -> Option<T> + Send + 'static,
{
    let mut ticks = ticks(CHECK_EVERY);
    loop {
        ticks.tick().await;
        let checked = on_blocking_thread(move || {
            let found = check();
            (check, found)
        });
        let found;
        (check, found) = checked.await;
        if let Some(found) = found {
            return found;
        }
    }
}

/// Ticks at once and then at this interval. A late tick delays all later ones.
pub fn ticks(every: Duration) -> Interval {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Runs `work` on a thread that may block. If it panics, the caller panics.
pub async fn on_blocking_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // Cancelled: the runtime is shutting down, and the caller's task with it.
            Err(_) => pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::clock::monotonic;

    struct Folder {
        folder: tempfile::TempDir,
        files: Watched<Pair>,
        max_bytes: Arc<AtomicU64>,
        now: Instant,
    }

    #[derive(Debug)]
    struct Pair([PathBuf; 2], Arc<AtomicU64>);

    impl FindFiles for Pair {
        type Notes = ();

        fn find_files(&self) -> (Vec<PathBuf>, ()) {
            (self.0.to_vec(), ())
        }

        fn max_file_bytes(&self) -> u64 {
            self.1.load(Ordering::Relaxed)
        }
    }

    /// Contents of the files; `-` for an unreadable one.
    fn read(pair: &Pair) -> Vec<String> {
        pair.0.iter().map(|path| fs::read_to_string(path).unwrap_or("-".to_owned())).collect()
    }

    impl Folder {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let paths = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
            for path in &paths {
                fs::write(path, "old").expect("room for a file");
            }
            let max_bytes = Arc::new(AtomicU64::new(100));
            let (files, texts) = Watched::start(Pair(paths, Arc::clone(&max_bytes)), read);
            assert_eq!(texts, ["old", "old"]);
            Self { folder, files, max_bytes, now: monotonic() }
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.folder.path().join(name), text).expect("room for a file");
        }

        /// What a check has loaded.
        fn check(&mut self) -> Option<Vec<String>> {
            self.now += CHECK_EVERY;
            match self.files.check(self.now, read) {
                Change::Loaded(texts) => Some(texts),
                Change::Unchanged | Change::Unsettled { .. } => None,
            }
        }
    }

    #[test]
    fn a_change_is_loaded_once_when_two_checks_agree() {
        let mut folder = Folder::new();
        assert_eq!(folder.check(), None);
        folder.write("tls.crt", "new");
        assert_eq!(folder.check(), None, "the writer may not have finished");
        folder.write("tls.key", "newer");
        assert_eq!(folder.check(), None, "it had not");
        assert_eq!(folder.check().as_deref(), Some(&["new".to_owned(), "newer".to_owned()][..]));
        assert_eq!(folder.check(), None);
        folder.write("tls.key", "newer");
        assert_eq!((folder.check(), folder.check()), (None, None), "the same bytes");
        folder.write("tls.key", "newest");
        folder.check();
        folder.write("tls.key", "newer");
        assert_eq!((folder.check(), folder.check()), (None, None), "as it was");
    }

    #[test]
    fn a_file_that_could_not_be_read_is_read_again_later() {
        let mut folder = Folder::new();
        folder.max_bytes.store(1, Ordering::Relaxed);
        folder.write("tls.key", "new");
        folder.check();
        assert!(folder.check().is_some(), "with an error");
        assert_eq!((folder.check(), folder.check()), (None, None), "the same error");
        folder.max_bytes.store(100, Ordering::Relaxed);
        assert_eq!(folder.check(), None, "it is not read at each check");
        folder.now += RETRY_AFTER;
        assert_eq!(folder.check().expect("a change")[1], "new");
        assert_eq!((folder.check(), folder.check()), (None, None));
    }

    #[test]
    fn what_was_loaded_while_a_writer_went_on_is_dropped() {
        let mut folder = Folder::new();
        folder.write("tls.key", "new");
        folder.check();
        let path = folder.folder.path().join("tls.key");
        let change = folder.files.check(folder.now, |_| fs::write(&path, "newer").expect("room for a file"));
        assert_eq!(change, Change::Unsettled { is_overdue: false });
        assert_eq!(folder.check().expect("a change")[1], "newer");
    }

    #[test]
    fn files_that_keep_changing_are_reported_once() {
        let mut folder = Folder::new();
        let mut reported = Vec::new();
        for seconds in 0..12 {
            folder.write("tls.key", &"x".repeat(seconds + 4));
            folder.now += Duration::from_secs(1);
            if folder.files.check(folder.now, read) == (Change::Unsettled { is_overdue: true }) {
                reported.push(seconds);
            }
        }
        assert_eq!(reported, [5]);
        assert!(folder.check().is_some());
    }

    #[test]
    fn renames_removals_and_swapped_links_are_changes() {
        let mut folder = Folder::new();
        let path = |name: &str| folder.folder.path().join(name);
        let [key, beside] = [path("tls.key"), path(".tls.key")];
        fs::write(&beside, "moved").expect("room for a file");
        fs::rename(&beside, &key).expect("a rename");
        folder.check();
        assert_eq!(folder.check().expect("a change")[1], "moved");
        fs::remove_file(&key).expect("a file");
        folder.check();
        assert_eq!(folder.check().expect("a change")[1], "-");
        // Like a Kubernetes Secret.
        for (version, text) in [("..1", "first"), ("..2", "second")] {
            let target = folder.folder.path().join(version);
            fs::create_dir(&target).expect("a folder");
            fs::write(target.join("tls.key"), text).expect("room for a file");
        }
        let data = folder.folder.path().join("..data");
        symlink("..1", &data).expect("a link");
        symlink("..data/tls.key", &key).expect("a link");
        folder.check();
        assert_eq!(folder.check().expect("a change")[1], "first");
        let swapped = folder.folder.path().join("..tmp");
        symlink("..2", &swapped).expect("a link");
        fs::rename(&swapped, &data).expect("a rename");
        folder.check();
        assert_eq!(folder.check().expect("a change")[1], "second");
    }
}
