//! Notices that the content of some files has changed, and that the writer has finished.

use std::path::PathBuf;

use sha2::{Digest as _, Sha256};

use super::pem_file::{PemError, PemFile};

/// The result of reading one file.
type Content = Result<PemFile, PemError>;
/// What two readings are compared by: the digest, so that keys do not stay in memory, or the error.
type Fingerprint = Result<[u8; 32], PemError>;

/// Files that belong together. Each check reads them: they are few and small, and their bytes show every kind of
/// change on every file system, a link that leads elsewhere included.
#[derive(Debug)]
pub struct WatchedFiles {
    paths: Vec<PathBuf>,
    /// Of the last reading.
    last: Vec<Fingerprint>,
    /// Of the reading that was returned last.
    taken: Vec<Fingerprint>,
}

impl WatchedFiles {
    /// Reads the files for the first time; the contents are in the order of `paths`.
    #[must_use]
    pub fn open(paths: Vec<PathBuf>) -> (Self, Vec<Content>) {
        let contents = read_all(&paths);
        let last = fingerprints(&contents);
        (Self { paths, taken: last.clone(), last }, contents)
    }

    /// Reads the files. Returns the contents if they differ from those returned last and equal those of the last
    /// check: a writer that is between the certificate and the key, or in the middle of a file, has not finished.
    /// Blocks as long as the file system does.
    pub fn check(&mut self) -> Option<Vec<Content>> {
        let contents = read_all(&self.paths);
        let now = fingerprints(&contents);
        let is_settled = now == self.last;
        let is_new = now != self.taken;
        self.last = now;
        if !(is_settled && is_new) {
            return None;
        }
        self.taken = self.last.clone();
        Some(contents)
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
