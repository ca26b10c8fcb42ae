//! A child process that writes to a log, is killed when dropped, and shows its log when the test fails.

use std::fs::File;
use std::process::{Child, Command, ExitStatus, Stdio};

use tempfile::NamedTempFile;

use super::wait;

/// How much of the log a failing test shows.
const SHOWN_LINES: usize = 60;

/// A running, or ended, external process.
pub struct Daemon {
    name: &'static str,
    child: Child,
    log: NamedTempFile,
}

/// Why a process did not become ready.
#[derive(Debug)]
pub struct NotReady {
    /// The exit status; `None` if the process still ran at the deadline.
    pub status: Option<ExitStatus>,
    /// The log of the process.
    pub log: String,
}

impl NotReady {
    /// Whether the port was in use. A start on another port can succeed.
    pub fn port_was_taken(&self) -> bool {
        self.status.is_some() && self.log.to_lowercase().contains("in use")
    }
}

impl Daemon {
    /// Starts `command`. Standard output and standard error go to a log file.
    ///
    /// `remedy` is the command that installs the program. The test failure shows it if the program does not start.
    pub fn spawn(name: &'static str, remedy: &str, command: &mut Command) -> Self {
        Self::spawn_with_stderr(name, remedy, command, None)
    }

    /// Like [`spawn`](Self::spawn), with standard error somewhere else than in the log file.
    pub fn spawn_with_stderr(
        name: &'static str,
        remedy: &str,
        command: &mut Command,
        stderr: Option<File>,
    ) -> Self {
        let log = NamedTempFile::new().expect("a temporary file");
        let append = || File::options().append(true).open(log.path()).expect("the log opens");
        let child = command
            .stdin(Stdio::null())
            .stdout(append())
            .stderr(stderr.unwrap_or_else(append))
            .spawn()
            .unwrap_or_else(|error| panic!("{name} does not start ({error}): run `{remedy}`"));
        Self { name, child, log }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// All output of the process so far.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.log.path()).expect("the log can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the log has `text`, and returns the log: a program may write its lines after their cause is seen.
    pub fn log_with(&self, text: &str) -> String {
        let found = wait::until(wait::PATIENCE, || Some(self.log()).filter(|log| log.contains(text)));
        found.unwrap_or_else(|| panic!("no {text:?} in the log:\n{}", self.log()))
    }

    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Waits until `ready` returns a value, the process ends or [`wait::PATIENCE`] is over.
    pub fn wait_ready<T>(&mut self, mut ready: impl FnMut(u32) -> Option<T>) -> Result<T, NotReady> {
        let id = self.id();
        let outcome = wait::until(wait::PATIENCE, || match self.exit_status() {
            Some(status) => Some(Err(status)),
            None => ready(id).map(Ok),
        });
        match outcome {
            Some(Ok(answer)) => Ok(answer),
            Some(Err(status)) => Err(NotReady { status: Some(status), log: self.log() }),
            None => Err(NotReady { status: None, log: self.log() }),
        }
    }

    /// Sends SIGTERM, as an orchestrator does.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends the signal `name`, written without SIG.
    pub fn signal(&self, name: &str) {
        self.signals(&[name]);
    }

    /// Sends several signals, one right after the other.
    pub fn signals(&self, names: &[&str]) {
        // The standard library sends only SIGKILL. The `kill` of the shell sends any signal.
        let each: Vec<_> = names.iter().map(|name| format!("kill -{name} {}", self.id())).collect();
        let sent = Command::new("sh").arg("-c").arg(each.join(" && ")).status();
        assert!(sent.is_ok_and(|status| status.success()), "{} does not accept the signal", self.name);
    }

    /// Waits until the process has ended without SIGKILL. Fails the test if it does not end.
    pub fn wait_exit(&mut self) -> ExitStatus {
        wait::until(wait::PATIENCE, || self.exit_status())
            .unwrap_or_else(|| panic!("{} is still running", self.name))
    }

    /// Ends the process at once (SIGKILL), as a crash does.
    pub fn kill(&mut self) {
        // Fails if the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            let shown = &lines[lines.len().saturating_sub(SHOWN_LINES)..];
            eprintln!("--- the last lines of the log of {} ---\n{}\n---", self.name, shown.join("\n"));
        }
    }
}

#[test]
fn a_process_that_ends_too_early_is_reported_with_its_log() {
    let mut command = Command::new("sh");
    let mut daemon =
        Daemon::spawn("sh", "apt-get install dash", command.args(["-c", "echo Address in use >&2; exit 3"]));
    let problem = daemon.wait_ready(|_| None::<()>).expect_err("the process ends before it is ready");
    assert_eq!(problem.status.and_then(|status| status.code()), Some(3));
    assert_eq!(problem.log, "Address in use\n");
    assert!(problem.port_was_taken());
}

#[test]
fn sigterm_ends_a_process() {
    let mut command = Command::new("sleep");
    let mut daemon = Daemon::spawn("sleep", "apt-get install coreutils", command.arg("600"));
    assert!(daemon.exit_status().is_none());
    daemon.terminate();
    assert!(!daemon.wait_exit().success());
}
