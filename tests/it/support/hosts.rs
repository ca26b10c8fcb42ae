//! A hosts file for the names that a process under test looks up. libnss_wrapper makes the process read it instead of
//! asking the system's name service.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::NamedTempFile;

use super::process::Plan;

/// Where packages put the library.
const FOLDERS: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// Names and where they lead.
pub struct Hosts {
    file: NamedTempFile,
    changes: u32,
}

impl Hosts {
    /// No name at all.
    pub fn new() -> Self {
        Self { file: NamedTempFile::new().expect("a temporary file"), changes: 0 }
    }

    /// From now on there is this name and no other.
    pub fn lead(&mut self, name: &str, to: IpAddr) {
        self.write(&format!("{to} {name}\n"));
    }

    /// From now on there is no name.
    pub fn forget(&mut self) {
        self.write("");
    }

    fn write(&mut self, text: &str) {
        let mut file = std::fs::File::create(self.file.path()).expect("the hosts file");
        file.write_all(text.as_bytes()).expect("room for a line");
        // The library tells a change by the time of the file, in whole seconds.
        self.changes += 1;
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(self.changes.into());
        file.set_modified(time).expect("a time");
    }

    /// Has a process look names up here.
    pub fn for_process(&self, plan: Plan) -> Plan {
        let file = self.file.path().to_str().expect("a path of a temporary file is text");
        let library = library();
        let library = library.to_str().expect("one of the names above");
        plan.variable("NSS_WRAPPER_HOSTS", file).variable("LD_PRELOAD", library)
    }
}

fn library() -> PathBuf {
    let mut found = FOLDERS.iter().map(|folder| Path::new(folder).join("libnss_wrapper.so"));
    found.find(|path| path.exists()).expect("libnss_wrapper.so is there: run `make tools`")
}
