//! Notices that the content of some files has changed, and that the writer has finished: when two readings agree and
//! differ from the one in force. `rules::Reloader` has the same rule for rule files. Has the loop of every file
//! that is watched: certificates, and the rule files of `rules`, which knows no runtime.
//!
//! The loop and [`on_blocking_thread`] are of use outside TLS, too. They stay here, in the lowest crate that knows a
//! runtime: a crate for two functions would be one more to look into.

use std::future::pending;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::time::{MissedTickBehavior, interval};

use super::file::{FileError, PemFile};

/// A change of files is returned by the second check after it: within half a second and the time to load the files.
const CHECK_EVERY: Duration = Duration::from_millis(250);

/// The result of reading one file.
type Content = Result<PemFile, FileError>;
/// What two readings are compared by: the digest, so that keys do not stay in memory, or the error.
type Fingerprint = Result<[u8; 32], FileError>;

/// Files that belong together. Each check reads them: they are few and small, and their bytes show every kind of
/// change on every file system, a link that leads elsewhere included.
#[derive(Debug)]
pub struct WatchedFiles {
    paths: Vec<PathBuf>,
    /// The fingerprints of the last reading.
    last_read: Vec<Fingerprint>,
    /// The fingerprints of the reading that was loaded last: returned to the caller.
    last_loaded: Vec<Fingerprint>,
}

impl WatchedFiles {
    /// Reads the files for the first time; the contents are in the order of `paths`.
    #[must_use]
    pub fn open(paths: Vec<PathBuf>) -> (Self, Vec<Content>) {
        let contents = read_all(&paths);
        let last_read = fingerprints(&contents);
        (Self { paths, last_loaded: last_read.clone(), last_read }, contents)
    }

    /// Reads the files. Returns the contents if they differ from those returned last and equal those of the last
    /// check: a writer that is between the certificate and the key, or in the middle of a file, has not finished.
    /// Blocks as long as the file system does.
    pub fn check(&mut self) -> Option<Vec<Content>> {
        let contents = read_all(&self.paths);
        let now = fingerprints(&contents);
        let is_settled = now == self.last_read;
        let is_new = now != self.last_loaded;
        self.last_read = now;
        if !(is_settled && is_new) {
            return None;
        }
        self.last_loaded = self.last_read.clone();
        Some(contents)
    }
}

/// Runs `check` at once and then four times a second, on a thread that may block, until it finds something: a file
/// system may hang.
pub async fn poll_blocking<T, C>(mut check: C) -> T
where
    T: Send + 'static,
    C: FnMut() -> Option<T> + Send + 'static,
{
    let mut ticks = interval(CHECK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
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

/// Does `work` on a thread that may block. A panic of the work is one of the caller.
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

fn read_all(paths: &[PathBuf]) -> Vec<Content> {
    paths.iter().map(|path| PemFile::open(path)).collect()
}

fn fingerprints(contents: &[Content]) -> Vec<Fingerprint> {
    let digest = |file: &PemFile| Sha256::digest(file.bytes()).into();
    contents.iter().map(|content| content.as_ref().map(digest).map_err(Clone::clone)).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    struct Folder {
        folder: tempfile::TempDir,
        files: WatchedFiles,
    }

    impl Folder {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let paths: Vec<_> = ["tls.crt", "tls.key"].map(|name| folder.path().join(name)).into();
            for path in &paths {
                fs::write(path, "old").expect("room for a file");
            }
            let (files, contents) = WatchedFiles::open(paths);
            assert!(contents.iter().all(Result::is_ok));
            Self { folder, files }
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.folder.path().join(name), text).expect("room for a file");
        }

        /// The texts of a check that found a change; `-` for a file that cannot be read.
        fn check(&mut self) -> Option<Vec<String>> {
            let text = |content: Content| {
                content.map_or("-".to_owned(), |file| String::from_utf8_lossy(file.bytes()).into_owned())
            };
            Some(self.files.check()?.into_iter().map(text).collect())
        }
    }

    #[test]
    fn a_change_is_returned_once_when_two_checks_agree() {
        let mut folder = Folder::new();
        assert_eq!(folder.check(), None);
        folder.write("tls.crt", "new");
        assert_eq!(folder.check(), None, "the writer may not have finished");
        folder.write("tls.key", "new");
        assert_eq!(folder.check(), None, "it had not");
        assert_eq!(folder.check().as_deref(), Some(&["new".to_owned(), "new".to_owned()][..]));
        assert_eq!(folder.check(), None);
        folder.write("tls.key", "new");
        assert_eq!((folder.check(), folder.check()), (None, None), "the same bytes");
        folder.write("tls.key", "newer");
        folder.check();
        folder.write("tls.key", "new");
        assert_eq!((folder.check(), folder.check()), (None, None), "as it was");
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
        // As in a Secret of Kubernetes.
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
