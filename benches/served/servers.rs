//! The services that can be measured: this one, the floor, and peers that decide by the same limit.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::processes::{Plan, Process, Service, free_port, wait_until};

const CHECK_MAP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/served/check_map.yaml");

/// A service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    Ratelimitd,
    /// This service, called by `/check`.
    Check,
    /// The relay that costs the least that any service can cost.
    Floor,
    /// This service, called by `/json`.
    Json,
    /// envoyproxy/ratelimit, with this number of connections to Redis.
    Envoyproxy {
        pool: u32,
    },
    Limitador,
}

/// The binaries of the services.
#[derive(Clone, Copy, Debug)]
pub struct Programs<'a> {
    pub ratelimitd: Program<'a>,
    pub envoyproxy: Option<&'a Path>,
    pub limitador: Option<&'a Path>,
}

/// The binary of this service.
#[derive(Clone, Copy, Debug)]
pub struct Program<'a>(pub &'a Path);

/// A service that runs, with rules of its own.
pub struct Served {
    pub process: Process,
    pub address: SocketAddr,
    /// Has the rule file, which the service reads again when it changes.
    _directory: TempDir,
}

impl Program<'_> {
    /// Starts it. `settings` are variables of the environment.
    pub fn serve(self, rules: &str, redis_port: Option<u16>, settings: &[(&str, &str)]) -> Served {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("rules.yaml");
        fs::write(&path, rules).expect("room for a rule file");
        let mut all = vec![("RATELIMITD__LOG__LEVEL", "warn")];
        all.extend(settings);
        let plan = Plan { program: self.0, redis_port, http_port: free_port(), rules: &path, settings: &all };
        let Service { port, process } = Service::start(&plan);
        Served { process, address: local(port), _directory: directory }
    }

    /// Starts it with `/check`, as nginx needs it. The address is that of the HTTP port.
    pub fn serve_check(self, rules: &str, redis_port: Option<u16>, settings: &[(&str, &str)]) -> Served {
        let address = local(free_port());
        let address_setting = address.to_string();
        let mut all = vec![
            ("RATELIMITD__SERVER__HTTP__ADDRESS", address_setting.as_str()),
            ("RATELIMITD__SERVER__HTTP__CHECK__MAP", CHECK_MAP),
            ("RATELIMITD__SERVER__HTTP__CHECK__DENIED_STATUS", "403"),
        ];
        all.extend(settings);
        Served { address, ..self.serve(rules, redis_port, &all) }
    }
}

/// Starts the floor: this program again, as a relay.
pub fn serve_floor(redis_port: Option<u16>) -> Served {
    let port = free_port();
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.args(["--floor", &port.to_string()]);
    if let Some(redis) = redis_port {
        command.args(["--floor-redis", &redis.to_string()]);
    }
    started(&mut command, port, tempfile::tempdir().expect("a temporary directory"))
}

/// Starts envoyproxy/ratelimit, without statistics. `rules` is a file that it reads.
pub fn serve_envoyproxy(program: &Path, rules: &str, redis_port: u16, pool: u32) -> Served {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("ratelimit/config");
    fs::create_dir_all(&config).expect("room for a directory");
    fs::write(config.join("rules.yaml"), rules).expect("room for a rule file");
    let port = free_port();
    let mut command = Command::new(program);
    command.env("RUNTIME_ROOT", directory.path()).env("RUNTIME_SUBDIRECTORY", "ratelimit");
    command.env("RUNTIME_WATCH_ROOT", "false").env("DISABLE_STATS", "true").env("USE_STATSD", "false");
    for name in ["HOST", "GRPC_HOST", "DEBUG_HOST"] {
        command.env(name, "127.0.0.1");
    }
    for (name, port) in [("GRPC_PORT", port), ("PORT", free_port()), ("DEBUG_PORT", free_port())] {
        command.env(name, port.to_string());
    }
    command.env("REDIS_SOCKET_TYPE", "tcp").env("REDIS_TYPE", "SINGLE");
    command.env("REDIS_URL", format!("127.0.0.1:{redis_port}")).env("REDIS_POOL_SIZE", pool.to_string());
    started(&mut command, port, directory)
}

/// Starts Limitador's server. The limit is written in its own language.
pub fn serve_limitador(program: &Path, limit: u32, redis_port: Option<u16>) -> Served {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("limits.yaml");
    let variables = r#"["descriptors[0].user0", "descriptors[0].path"]"#;
    let limits = format!(
        "- namespace: bench\n  max_value: {limit}\n  seconds: 1\n  conditions: []\n  variables: {variables}\n"
    );
    fs::write(&path, limits).expect("room for a file of limits");
    let (port, http_port) = (free_port(), free_port());
    let mut command = Command::new(program);
    command.args(["--rls-ip", "127.0.0.1", "--rls-port", &port.to_string()]);
    command.args(["--http-ip", "127.0.0.1", "--http-port", &http_port.to_string()]).arg(&path);
    match redis_port {
        Some(redis) => command.args(["redis", &format!("redis://127.0.0.1:{redis}")]),
        None => command.arg("memory"),
    };
    started(&mut command, port, directory)
}

fn started(command: &mut Command, port: u16, directory: TempDir) -> Served {
    let process = Process::spawn(command);
    wait_until("the server listens", || TcpStream::connect(local(port)).is_ok());
    Served { process, address: local(port), _directory: directory }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
