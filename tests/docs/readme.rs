//! Runs the examples of the documentation. A `console` block is a session: lines that begin with `$ ` are commands, the
//! others are their output. `...` matches any text within a line and, alone on a line, any lines. A `sh` block
//! needs docker, a compiler or a terminal: only the make targets and files that it names are checked.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

#[path = "../it/support/ports.rs"]
mod ports;
#[path = "../it/support/wait.rs"]
#[expect(dead_code, reason = "shared with the integration tests, which use all of it")]
mod wait;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const BINARY: &str = env!("CARGO_BIN_EXE_ratelimitd");
/// Another process may take a free port before the service binds it.
const ATTEMPTS: u32 = 5;

/// The pages whose sessions are run. Each page gets its own service.
const PAGES: [&str; 14] = [
    "README.md",
    "docs/console.md",
    "docs/exceptions.md",
    "docs/kubernetes.md",
    "docs/metrics.md",
    "docs/migrating.md",
    "docs/operations.md",
    "docs/recipes.md",
    "docs/redis.md",
    "docs/reload.md",
    "docs/rules.md",
    "docs/runbook.md",
    "docs/security.md",
    "docs/sizing.md",
];

fn read(file: &str) -> String {
    let path = Path::new(ROOT).join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A fenced block and the number of its first line.
struct Block {
    language: String,
    line: usize,
    text: String,
}

fn blocks(file: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut is_open = false;
    for (at, line) in read(file).lines().enumerate() {
        if let Some(language) = line.strip_prefix("```") {
            is_open = !is_open;
            if is_open {
                blocks.push(Block { language: language.to_owned(), line: at + 2, text: String::new() });
            }
        } else if let Some(block) = blocks.last_mut().filter(|_| is_open) {
            block.text.push_str(line);
            block.text.push('\n');
        }
    }
    blocks
}

fn blocks_in(file: &str, language: &str) -> impl Iterator<Item = Block> {
    blocks(file).into_iter().filter(move |block| block.language == language)
}

/// The commands of a session, each with the lines that it must print.
fn session(text: &str) -> Vec<(String, Vec<&str>)> {
    let mut steps: Vec<(String, Vec<&str>)> = Vec::new();
    let mut is_continued = false;
    for line in text.lines() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push((command.to_owned(), Vec::new())),
            (None, Some((command, _))) if is_continued => *command += &format!("\n{line}"),
            (None, Some((_, printed))) => printed.push(line),
            (None, None) => panic!("a session begins with a command, not with {line:?}"),
        }
        is_continued = line.ends_with('\\');
    }
    steps
}

fn line_matches(shown: &str, printed: &str) -> bool {
    let Some((start, mut shown)) = shown.split_once("...") else {
        return shown == printed;
    };
    let Some(mut rest) = printed.strip_prefix(start) else {
        return false;
    };
    while let Some((piece, after)) = shown.split_once("...") {
        let Some(at) = rest.find(piece) else {
            return false;
        };
        (rest, shown) = (&rest[at + piece.len()..], after);
    }
    rest.ends_with(shown)
}

fn matches(shown: &[&str], printed: &[&str]) -> bool {
    match (shown, printed) {
        ([], []) => true,
        (["...", after @ ..], _) => (0..=printed.len()).any(|skip| matches(after, &printed[skip..])),
        ([line, shown @ ..], [first, printed @ ..]) => line_matches(line, first) && matches(shown, printed),
        _ => false,
    }
}

/// Runs `command` in a shell, as a reader would, and returns both output streams.
fn run(command: &str, input: &str) -> String {
    let folder = Path::new(BINARY).parent().expect("the binary is in a folder").display();
    let script = format!("PATH='{folder}':$PATH; exec 2>&1\n{command}");
    let mut shell = Command::new("sh")
        .args(["-c", &script])
        .current_dir(ROOT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a POSIX shell");
    // A command that reads no input may have closed the pipe.
    let _ = shell.stdin.take().expect("is piped").write_all(input.as_bytes());
    let output = shell.wait_with_output().expect("the shell ends");
    let printed = String::from_utf8(output.stdout).expect("text");
    assert!(!printed.contains("curl: not found"), "curl is missing: run `apt-get install curl`");
    printed
}

/// The service on free ports, with the shipped settings and rules; killed when dropped.
struct Service {
    process: Child,
    grpc: u16,
    http: u16,
    admin: u16,
}

impl Drop for Service {
    fn drop(&mut self) {
        // Fails if the process has ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Service {
    fn start(store: &[(&str, &str)]) -> Self {
        Self::start_with(&["--config", "config/ratelimitd.yaml"], store)
    }

    fn start_with(arguments: &[&str], settings: &[(&str, &str)]) -> Self {
        (0..ATTEMPTS).find_map(|_| Self::try_start(arguments, settings)).expect("a service on free ports")
    }

    fn try_start(arguments: &[&str], settings: &[(&str, &str)]) -> Option<Self> {
        let (grpc, http, admin) = (ports::free(), ports::free(), ports::free());
        let address = |port: u16| format!("127.0.0.1:{port}");
        let process = Command::new(BINARY)
            .args(arguments)
            .env("RATELIMITD__SERVER__GRPC__ADDRESS", address(grpc))
            .env("RATELIMITD__SERVER__HTTP__ADDRESS", address(http))
            .env("RATELIMITD__SERVER__ADMIN__ADDRESS", address(admin))
            .envs(settings.iter().copied())
            .current_dir(ROOT)
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let mut service = Self { process, grpc, http, admin };
        let is_up = wait::until(wait::PATIENCE, || {
            let has_ended = service.process.try_wait().expect("the process has a status").is_some();
            (has_ended || service.get("/livez").contains("ok")).then_some(!has_ended)
        });
        (is_up == Some(true)).then_some(service)
    }

    /// The answer to a GET with its head; empty if there is no answer.
    fn get(&self, path: &str) -> String {
        let mut answer = String::new();
        if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.http)) {
            let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            // An error leaves the answer incomplete, and the caller sees that.
            let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer));
        }
        answer
    }

    /// The command with the addresses of this service.
    fn addressed(&self, command: &str) -> String {
        command
            .replace("localhost:8080", &format!("127.0.0.1:{}", self.http))
            .replace("localhost:6070", &format!("127.0.0.1:{}", self.admin))
            .replace("ratelimitctl check ", &format!("ratelimitctl check --address 127.0.0.1:{} ", self.grpc))
    }
}

#[test]
fn commands_of_every_page_print_the_shown_output() {
    let mut problems = Vec::new();
    for page in PAGES {
        let service = Service::start(&[]);
        for Block { line, text, .. } in blocks_in(page, "console") {
            for (command, shown) in session(&text) {
                let printed = run(&service.addressed(&command), "");
                if !matches(&shown, &printed.lines().collect::<Vec<_>>()) {
                    let shown = shown.join("\n");
                    problems.push(format!("{page}:{line}: $ {command}\n{printed}instead of\n{shown}"));
                }
            }
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n\n"));
}

#[test]
fn rule_files_in_the_pages_are_valid() {
    let home = "RATELIMITD__STORE__KIND=redis RATELIMITD__STORE__REDIS__HOME__URL=redis://home";
    let command = format!("{home} RATELIMITD__SECRETS__KEY=$(printf %032d 0) ratelimitd validate --strict -");
    for page in PAGES {
        for Block { line, text, .. } in blocks_in(page, "yaml") {
            let output = run(&command, &text);
            assert!(output.starts_with("all rate limit configs ok"), "{page}:{line}: {output}");
        }
    }
}

#[test]
fn make_targets_and_files_in_shell_blocks_exist() {
    let makefile = read("Makefile");
    for page in PAGES {
        for Block { line, text, .. } in blocks_in(page, "sh") {
            let mut words = text.split_whitespace().peekable();
            while let Some(word) = words.next() {
                let next = words.peek().copied().unwrap_or_default();
                let is_target = word != "make" || makefile.contains(&format!("\n{next}: "));
                assert!(is_target, "{page}:{line}: the Makefile has no target {next}");
                let is_file = ["config/", "docs/", "deploy/"].iter().any(|folder| word.starts_with(folder));
                assert!(!is_file || Path::new(ROOT).join(word).exists(), "{page}:{line}: no {word}");
            }
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// The metric names in `text`. A bucket series counts as its histogram.
fn metrics_in(text: &str) -> impl Iterator<Item = &str> {
    let words = words(text).map(|word| word.strip_suffix("_bucket").unwrap_or(word));
    let starts = ["ratelimitd_", "ratelimit_service_", "process_"];
    let is_metric = move |word: &&str| starts.iter().any(|start| word.starts_with(start));
    // The keys of entries that report a pause and return a receipt.
    words.filter(is_metric).filter(|word| !["ratelimitd_pause", "ratelimitd_receipt"].contains(word))
}

/// Labels of our own metrics, in braces after a name.
fn labels_in(page: &str) -> BTreeSet<&str> {
    let families = page.split("`ratelimitd_").skip(1).filter_map(|rest| rest.split('`').next());
    let labels = families.filter_map(|family| family.split_once('{')).flat_map(|(_, labels)| words(labels));
    labels.filter(|label| !label.is_empty()).collect()
}

/// The paths of a certificate and its key.
fn certificate_in(folder: &Path) -> [String; 2] {
    let made = rcgen::generate_simple_self_signed(vec!["ratelimit.local".to_owned()]).expect("a certificate");
    let files = [("tls.crt", made.cert.pem()), ("tls.key", made.signing_key.serialize_pem())];
    files.map(|(name, pem)| {
        let path = folder.join(name);
        std::fs::write(&path, pem).expect("room for a file");
        path.to_str().expect("a path of a temporary file is text").to_owned()
    })
}

#[test]
fn every_metric_is_documented_and_exists() {
    // The metrics of the Redis store are exposed even while Redis does not answer, those of TLS where a port has it,
    // those of exceptions where they have a file, and those of pauses where a rule has them.
    let folder = tempfile::tempdir().expect("a folder");
    let [certificate, key] = certificate_in(folder.path());
    let exceptions = folder.path().join("exceptions.csv");
    std::fs::write(&exceptions, "domain,key,value,tier\n").expect("room for a file");
    let exceptions = exceptions.to_str().expect("a path of a temporary file is text");
    let metrics = read("docs/metrics.md");
    // Tags named like labels.
    let tags = labels_in(&metrics).iter().map(|label| format!("{label}:tag")).collect::<Vec<_>>().join(",");
    let tags = ("RATELIMITD__METRICS__EXTRA_TAGS", tags.as_str());
    let service = Service::start(&[
        tags,
        ("RATELIMITD__STORE__KIND", "redis"),
        ("RATELIMITD__STORE__REDIS__URL", "redis+unix:///nowhere/redis.sock"),
        ("RATELIMITD__STORE__REDIS__PER_SECOND__URL", "redis+unix:///nowhere/redis.sock"),
        ("RATELIMITD__STORE__REDIS__HOME__URL", "redis+unix:///nowhere/redis.sock"),
        ("RATELIMITD__SERVER__GRPC__TLS__CERT_FILE", &certificate),
        ("RATELIMITD__SERVER__GRPC__TLS__KEY_FILE", &key),
        ("RATELIMITD__EXCEPTIONS__PATH", exceptions),
    ]);
    // The settings file names rule files, and two sources of rules are refused.
    let by_xds = Service::start_with(&["serve"], &[("RATELIMITD__RULES__XDS__ADDRESS", "localhost:1"), tags]);
    let ledger = folder.path().join("usage");
    let ledger = ledger.to_str().expect("a path of a temporary file is text");
    let traced =
        [("RATELIMITD__TRACES__ENDPOINT", "http://localhost:1"), ("RATELIMITD__LEDGER__PATH", ledger), tags];
    let traced = Service::start_with(&["serve"], &traced);
    let rules = folder.path().join("rules");
    std::fs::create_dir(&rules).expect("a new folder");
    let pauses = "penalty: { after: 10, within: 1m, for: 15m }, feedback: { max: 10m }";
    let limit = format!("{{ unit: minute, requests_per_unit: 5, {pauses} }}");
    let text = format!("domain: d\ndescriptors: [{{ key: k, rate_limit: {limit} }}]\n");
    std::fs::write(rules.join("rules.yaml"), text).expect("room for a file");
    let rules = rules.to_str().expect("a path of a temporary file is text");
    let paused = Service::start_with(&["serve"], &[("RATELIMITD__RULES__PATH", rules), tags]);
    let services = [&service, &by_xds, &traced, &paused];
    let exposed: String = services.map(|service| service.get("/metrics")).concat();
    let families = || exposed.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    for series in exposed.lines().filter(|line| !line.starts_with('#')) {
        let names: Vec<_> = series.split("=\"").filter_map(|name| name.rsplit(['{', ',']).next()).collect();
        let distinct: BTreeSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), names.len(), "{series}");
    }
    let missing: Vec<_> = families().filter(|name| !words(&metrics).any(|known| known == *name)).collect();
    assert!(missing.is_empty(), "docs/metrics.md does not document {missing:?}");
    for page in PAGES {
        let text = read(page);
        let gone: Vec<_> =
            metrics_in(&text).filter(|name| !families().any(|family| family == *name)).collect();
        assert!(gone.is_empty(), "{page} names {gone:?}, which /metrics does not expose");
    }
}
