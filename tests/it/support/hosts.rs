//! A hosts file for the names that a process under test resolves. libnss_wrapper makes the process read this file
//! instead of the name service of the system.

use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tempfile::NamedTempFile;

use super::process::Plan;

/// The folders in which packages install the library.
const FOLDERS: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// Host names and their addresses.
pub struct Hosts {
    file: NamedTempFile,
    changes: u32,
}

impl Hosts {
    /// A hosts file without names.
    pub fn new() -> Self {
        Self { file: NamedTempFile::new().expect("a temporary file"), changes: 0 }
    }

    /// Makes `name` the only name in the file.
    pub fn set_address(&mut self, name: &str, address: IpAddr) {
        self.write(&format!("{address} {name}\n"));
    }

    /// Removes every name from the file.
    pub fn clear(&mut self) {
        self.write("");
    }

    fn write(&mut self, text: &str) {
        let mut file = std::fs::File::create(self.file.path()).expect("the hosts file");
        file.write_all(text.as_bytes()).expect("room for a line");
        // The library detects a change by the modification time of the file, in whole seconds.
        self.changes += 1;
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(self.changes.into());
        file.set_modified(time).expect("a time");
    }

    /// Makes a process resolve names with this file.
    pub fn for_process(&self, plan: Plan) -> Plan {
        let file = self.file.path().to_str().expect("a path of a temporary file is text");
        let library = library();
        let library = library.to_str().expect("the path is one of FOLDERS");
        plan.variable("NSS_WRAPPER_HOSTS", file).variable("LD_PRELOAD", library)
    }
}

fn library() -> PathBuf {
    let mut found = FOLDERS.iter().map(|folder| Path::new(folder).join("libnss_wrapper.so"));
    found.find(|path| path.exists()).expect("libnss_wrapper.so is there: run `make tools`")
}
