//! The processes of a benchmark, killed when dropped.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

/// A child process.
pub struct Process(Child);

impl Process {
    pub fn spawn(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        Self(child.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}")))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Whether the process has not ended.
    pub fn runs(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if the process has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

pub fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let give_up = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < give_up, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A redis-server without persistence.
pub struct Redis {
    pub port: u16,
    pub process: Process,
}

impl Redis {
    pub fn start() -> Self {
        let port = free_port();
        let redis = Self { port, process: Self::spawn(port) };
        wait_until("redis-server answers", || redis.answers());
        redis
    }

    fn spawn(port: u16) -> Process {
        let port = port.to_string();
        let settings = ["--port", &port, "--save", "", "--appendonly", "no", "--hz", "100"];
        Process::spawn(Command::new("redis-server").args(settings))
    }

    fn answers(&self) -> bool {
        self.ask(&["PING"]).is_ok()
    }

    fn ask(&self, words: &[&str]) -> redis::RedisResult<()> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}/", self.port))?;
        let mut command = redis::Cmd::new();
        command.arg(words).exec(&mut client.get_connection()?)
    }

    /// Ends the server as a crash does.
    pub fn kill(&mut self) {
        let _ = self.process.0.kill();
        let _ = self.process.0.wait();
    }

    pub fn start_again(&mut self) {
        self.process = Self::spawn(self.port);
    }

    pub fn signal(&self, name: &str) {
        let sent = Command::new("sh").arg("-c").arg(format!("kill -{name} {}", self.process.id())).status();
        assert!(sent.is_ok_and(|status| status.success()), "redis-server accepts no signal");
    }

    pub fn command(&self, words: &[&str]) {
        self.ask(words).expect("redis-server accepts the command");
    }
}

/// What a service is started with.
pub struct Plan<'a> {
    /// The binary.
    pub program: &'a Path,
    /// Without it, counters are in memory.
    pub redis_port: Option<u16>,
    pub http_port: u16,
    /// The rule file.
    pub rules: &'a Path,
    /// Variables of the environment, for settings that are not the defaults.
    pub settings: &'a [(&'a str, &'a str)],
}

/// The service.
pub struct Service {
    pub port: u16,
    pub process: Process,
}

impl Service {
    pub fn start(plan: &Plan<'_>) -> Self {
        let port = free_port();
        let mut command = Command::new(plan.program);
        command
            .arg("serve")
            .env("RATELIMITD__SERVER__GRPC__ADDRESS", format!("127.0.0.1:{port}"))
            .env("RATELIMITD__SERVER__HTTP__ADDRESS", format!("127.0.0.1:{}", plan.http_port))
            .env("RATELIMITD__SERVER__ADMIN__ADDRESS", format!("127.0.0.1:{}", free_port()))
            .env("RATELIMITD__RULES__PATH", plan.rules)
            .envs(plan.settings.iter().copied());
        if let Some(port) = plan.redis_port {
            command
                .env("RATELIMITD__STORE__KIND", "redis")
                .env("RATELIMITD__STORE__REDIS__URL", format!("redis://127.0.0.1:{port}"));
        }
        let process = Process::spawn(&mut command);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        wait_until("ratelimitd listens", || TcpStream::connect(address).is_ok());
        Self { port, process }
    }
}
