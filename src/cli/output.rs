//! Standard output and standard error of the sub-commands of both programs. `println!` and `eprintln!` panic if the
//! reader is gone, or the device is full.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use base::escaped_lines;

/// Exit code if the output cannot be written.
const NOT_WRITTEN: u8 = 2;

/// Writes to standard output, escaped: strings from clients or files have no effect on a terminal.
///
/// # Errors
/// If the reader is gone or the device is full. [`end`] turns it into the exit code.
pub fn print(text: &str) -> io::Result<()> {
    print_painted(&escaped_lines(text))
}

/// Writes to standard output unchanged: coloured text whose other parts are harmless.
///
/// # Errors
/// See [`print()`].
pub fn print_painted(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes a line to standard error: a problem, or a remark that is not part of the output.
pub fn print_error(line: impl Display) {
    // There is nowhere else to report to; the exit code remains.
    let _ = writeln!(io::stderr(), "{}", escaped_lines(&line.to_string()));
}

/// Returns the exit code of a command whose output was `printed`: `code`, unless the output could not be written. A
/// reader that stops early, like `head`, is not a failure.
pub fn end(printed: io::Result<()>, code: ExitCode) -> ExitCode {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            print_error(format_args!("cannot write to standard output: {error}"));
            ExitCode::from(NOT_WRITTEN)
        }
        _ => code,
    }
}

/// Prints a command's output, or why there is none, and returns the exit code: `failed` if there is none. `command`: as
/// typed, with its program.
pub fn finish(command: &str, text: Result<String, impl Display>, failed: u8) -> ExitCode {
    match text {
        Ok(text) => end(print(&text), ExitCode::SUCCESS),
        Err(error) => fail(command, error, failed),
    }
}

/// Prints why a command failed, and returns its exit code. `command`: as typed, with its program.
pub fn fail(command: &str, error: impl Display, code: u8) -> ExitCode {
    print_error(format_args!("{command}: {error}"));
    ExitCode::from(code)
}
