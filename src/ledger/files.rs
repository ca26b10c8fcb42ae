//! The files of one process in the ledger's directory, which processes may share: one that grows, and finished ones,
//! which are compressed. Removes old files of all processes.

use std::fs::{self, DirEntry, File, OpenOptions};
use std::io::{self, BufReader, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;

const MAX_FILE_BYTES: u64 = 256 << 20;
const DAY_US: u64 = 86_400_000_000;

#[derive(Debug)]
pub(super) struct LedgerFiles {
    directory: PathBuf,
    /// End of each name, without `.jsonl`.
    process: String,
    open: Option<OpenFile>,
    /// Finished, and to be compressed.
    finished: Vec<PathBuf>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    path: PathBuf,
    /// Bytes of whole writes.
    len: u64,
    day: u64,
}

impl LedgerFiles {
    pub(super) fn new(directory: PathBuf, process: String) -> Self {
        Self { directory, process, open: None, finished: Vec::new() }
    }

    /// `true` if the next write begins a file: at the start, after midnight UTC, after 256 MiB, and if the open file is
    /// gone.
    pub(super) fn needs_new(&mut self, now_us: u64) -> bool {
        let Some(open) = &self.open else { return true };
        let is_full = open.day != now_us / DAY_US || open.len >= MAX_FILE_BYTES;
        let is_there = open.is_there();
        if is_full && is_there {
            self.finished.push(open.path.clone());
        }
        if is_full || !is_there {
            self.open = None;
        }
        self.open.is_none()
    }

    /// Writes whole lines to the open file, or to a new one, and waits for the disk. If this fails, the file is as
    /// before, or is not written to again.
    pub(super) fn write(&mut self, lines: &[u8], now_us: u64) -> io::Result<()> {
        let open = match &mut self.open {
            Some(open) => open,
            none => none.insert(OpenFile::create(&self.directory, &self.process, now_us)?),
        };
        let written = open.file.write_all(lines).and_then(|()| open.file.sync_data());
        if written.is_ok() {
            open.len += lines.len() as u64;
        } else if open.file.set_len(open.len).is_err() {
            self.open = None;
        }
        written
    }

    /// Shows that the process lives although it writes nothing: sets the file's time.
    pub(super) fn touch(&self, now_us: u64) -> io::Result<()> {
        self.open.as_ref().map_or(Ok(()), |open| open.file.set_modified(time(now_us)))
    }

    /// Compresses the finished files. After an error, the next call tries again.
    pub(super) fn compress(&mut self) -> io::Result<()> {
        while let Some(path) = self.finished.last() {
            match compress(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => self.finished.pop(),
            };
        }
        Ok(())
    }

    /// Removes files last written before `oldest_us`, and the oldest above `max_bytes`. Returns the latter.
    pub(super) fn remove_old(&self, oldest_us: u64, max_bytes: u64) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let is_open = self.open.as_ref().is_some_and(|open| open.path == entry.path());
            if is_of_ledger(&entry) && !is_open {
                let metadata = entry.metadata()?;
                files.push((metadata.modified()?, metadata.len(), entry.path()));
            }
        }
        files.sort_unstable();
        let (old, mut kept): (Vec<_>, Vec<_>) =
            files.into_iter().partition(|(modified, ..)| *modified < time(oldest_us));
        for (.., path) in old {
            fs::remove_file(path)?;
        }
        let mut bytes = kept.iter().map(|(_, len, _)| len).sum::<u64>();
        bytes += self.open.as_ref().map_or(0, |open| open.len);
        let mut removed = Vec::new();
        for (_, len, path) in kept.drain(..) {
            if bytes <= max_bytes {
                break;
            }
            fs::remove_file(&path)?;
            bytes -= len;
            removed.push(path);
        }
        Ok(removed)
    }
}

impl OpenFile {
    fn create(directory: &Path, process: &str, now_us: u64) -> io::Result<Self> {
        let start = humantime::format_rfc3339_seconds(time(now_us)).to_string().replace(['-', ':'], "");
        let path = directory.join(format!("usage-{start}-{process}.jsonl"));
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        let len = file.metadata()?.len();
        Ok(Self { file, path, len, day: now_us / DAY_US })
    }

    /// `false` if the file was removed or replaced, so nobody would read what is written to it.
    fn is_there(&self) -> bool {
        let id = |found: fs::Metadata| (found.dev(), found.ino());
        fs::metadata(&self.path).map(id).ok() == self.file.metadata().map(id).ok()
    }
}

fn time(us: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(us)
}

fn is_of_ledger(entry: &DirEntry) -> bool {
    let name = entry.file_name();
    name.to_str().is_some_and(|name| name.starts_with("usage-") && name.contains(".jsonl"))
}

/// Replaces a file by its compressed form, which is complete whenever it is there. Keeps the file's time.
fn compress(path: &Path) -> io::Result<()> {
    let source = File::open(path)?;
    let modified = source.metadata()?.modified()?;
    let [partial, whole] = [".gz.partial", ".gz"].map(|end| {
        let mut name = path.as_os_str().to_owned();
        name.push(end);
        PathBuf::from(name)
    });
    let target = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
    let write = || {
        let mut encoder = GzEncoder::new(target, Compression::default());
        io::copy(&mut BufReader::new(source), &mut encoder)?;
        let target = encoder.finish()?;
        target.set_modified(modified)?;
        target.sync_all()?;
        fs::rename(&partial, &whole)
    };
    if let Err(error) = write() {
        // On a full disk, its bytes are needed. The first error says what is wrong.
        drop(fs::remove_file(&partial));
        return Err(error);
    }
    fs::remove_file(path)
}
