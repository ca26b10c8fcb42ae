//! Processes under measurement, and the CPU they use.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A child process, killed when dropped.
pub struct Process(Child);

impl Process {
    pub fn spawn(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}")))
    }

    /// CPU time used so far by all threads, from the scheduler's own account (nanoseconds).
    pub fn cpu(&self) -> Duration {
        let tasks =
            std::fs::read_dir(format!("/proc/{}/task", self.0.id())).expect("the process runs, on Linux");
        let of_task = |task: std::io::Result<std::fs::DirEntry>| {
            let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        };
        Duration::from_nanos(tasks.filter_map(of_task).sum())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// Waits until something accepts connections there.
pub fn wait_for(port: u16) -> SocketAddr {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let give_up = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(address).is_err() {
        assert!(Instant::now() < give_up, "nothing listens on port {port}");
        std::thread::sleep(Duration::from_millis(20));
    }
    address
}

/// A Redis of its own on a free port.
pub fn redis() -> (Process, u16) {
    let port = free_port();
    let process = Process::spawn(Command::new("redis-server").args([
        "--port",
        &port.to_string(),
        "--save",
        "",
        "--appendonly",
        "no",
        "--hz",
        "100",
    ]));
    wait_for(port);
    (process, port)
}

/// The release binary with the rules of the benchmark.
pub fn ratelimitd(directory: &Path, rules: &str, redis_port: Option<u16>) -> (Process, SocketAddr) {
    let path = directory.join("rules.yaml");
    let mut file = std::fs::File::create(&path).expect("a file in a temporary directory");
    file.write_all(rules.as_bytes()).expect("room for a rule file");
    let port = free_port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
    command
        .arg("serve")
        .env("RATELIMITD__SERVER__GRPC__ADDRESS", format!("127.0.0.1:{port}"))
        .env("RATELIMITD__SERVER__HTTP__ADDRESS", format!("127.0.0.1:{}", free_port()))
        .env("RATELIMITD__SERVER__ADMIN__ADDRESS", format!("127.0.0.1:{}", free_port()))
        .env("RATELIMITD__RULES__PATH", &path)
        .env("RATELIMITD__LOG__LEVEL", "warn");
    if let Some(redis) = redis_port {
        command
            .env("RATELIMITD__STORE__KIND", "redis")
            .env("RATELIMITD__STORE__REDIS__URL", format!("redis://127.0.0.1:{redis}"))
            // Under saturation a closed loop measures throughput, not deadlines.
            .env("RATELIMITD__STORE__REDIS__TIMEOUT", "1s");
    }
    let process = Process::spawn(&mut command);
    (process, wait_for(port))
}
