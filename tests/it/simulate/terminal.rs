//! Colours and a progress bar on a terminal, none elsewhere.

use std::process::{Command, Stdio};

use super::{RULES, Simulation};

const MAP: &str = "domain: edge\ndescriptors:\n  - - { key: remote_address, from: remote_addr }\n";
/// Runs its arguments on a terminal of their own.
const ON_TERMINAL: &str = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)";

#[test]
fn colours_and_the_progress_bar_are_for_terminals() {
    let line = "192.0.2.1 - - [15/Apr/2026:20:17:00 +0000] \"GET / HTTP/1.1\" 200 1 \"-\" \"curl\"\n";
    let simulation = Simulation::new(RULES).map(MAP).log("a.log", line.repeat(20_000));
    let arguments = ["--rules", "rules.yaml", "--map", "map.yaml", "a.log"];
    let mut command = Command::new("python3");
    command.args(["-c", ON_TERMINAL, env!("CARGO_BIN_EXE_ratelimitctl"), "simulate"]).args(arguments);
    command.current_dir(simulation.path("")).env("TERM", "xterm").stdin(Stdio::null());
    let output = command.output().expect("Python runs");
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{shown}");
    assert!(shown.contains("\x1b[31mper-address"), "a limit with denials is red: {shown}");
    assert!(shown.contains("lines/s"), "the progress bar: {shown}");

    let piped = simulation.succeed();
    assert!(piped.stdout.contains("per-address"), "{}", piped.stdout);
    assert!(!piped.stdout.contains('\x1b') && piped.stderr.is_empty(), "{} {}", piped.stdout, piped.stderr);
}
