//! Standard output and standard error of the sub-commands. `println!` and `eprintln!` panic when the reader has gone,
//! and when the device is full.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::process::ExitCode;

use base::escaped_lines;

/// For output that cannot be written.
const NOT_WRITTEN: u8 = 2;

/// Writes to standard output. What clients or rows have written has no effect on a terminal.
///
/// # Errors
/// When the reader has gone or the device is full. [`end`] turns it into the exit code.
pub(crate) fn print(text: &str) -> io::Result<()> {
    print_painted(&escaped_lines(text))
}

/// Writes to standard output as it is: a text with colours, whose other parts are harmless.
///
/// # Errors
/// See [`print()`].
pub(crate) fn print_painted(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes a line to standard error: a problem, or a remark that is no part of the output.
pub(crate) fn print_error(line: impl Display) {
    // There is no other place to report to; the exit code remains.
    let _ = writeln!(io::stderr(), "{}", escaped_lines(&line.to_string()));
}

/// The exit code of a command whose output was `printed`: `code`, unless the output could not be written. A reader that
/// has read enough, as `head` does, is no failure.
pub(crate) fn end(printed: io::Result<()>, code: ExitCode) -> ExitCode {
    match printed {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            print_error(format_args!("ratelimitd: standard output cannot be written: {error}"));
            ExitCode::from(NOT_WRITTEN)
        }
        _ => code,
    }
}
