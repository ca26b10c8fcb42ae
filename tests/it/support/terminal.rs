//! A command on a terminal of its own: a pseudo-terminal, and what it shows.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use super::wait;

const COLUMNS: u16 = 100;
const ROWS: u16 = 30;

/// A running command and its terminal of 100 columns and 30 rows. The command is killed when this is dropped.
pub struct OnTerminal {
    child: Child,
    keyboard: File,
    /// Held open, so that the terminal outlives the command.
    terminal: File,
    modes_before: Termios,
    written: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    pub fn start(command: &mut Command) -> Self {
        Self::start_with(command, COLUMNS)
    }

    /// A terminal that reports this many columns.
    pub fn start_with(command: &mut Command, columns: u16) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
        grantpt(&master).expect("a terminal of this user");
        unlockpt(&master).expect("a terminal");
        let name = ptsname(&master, Vec::new()).expect("a name").into_string().expect("UTF-8");
        let no_control = OpenptFlags::NOCTTY.bits().cast_signed();
        let terminal = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(no_control)
            .open(PathBuf::from(name))
            .expect("the terminal opens");
        tcsetwinsize(&terminal, Winsize { ws_row: ROWS, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })
            .expect("a size");
        let modes_before = tcgetattr(&terminal).expect("the modes");
        let end = || terminal.try_clone().expect("a descriptor");
        let child = command.stdin(end()).stdout(end()).stderr(end()).env("TERM", "xterm-256color");
        let child = child.spawn().expect("the binary runs");
        let keyboard = File::from(master);
        let mut screen = keyboard.try_clone().expect("a descriptor");
        let written = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&written);
        // Ends when the last descriptor of the terminal is closed.
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                sink.lock().expect("no reader panics").extend_from_slice(&bytes[..count]);
            }
        });
        Self { child, keyboard, terminal, modes_before, written }
    }

    /// All that the command has written, with its control sequences.
    pub fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().expect("no reader panics")).into_owned()
    }

    /// What the terminal shows.
    pub fn screen(&self) -> String {
        shown(&self.written())
    }

    /// Waits until the terminal shows a text.
    pub fn expect(&self, text: &str) {
        let found = wait::until(wait::PATIENCE, || self.screen().contains(text).then_some(()));
        assert!(found.is_some(), "no `{text}` on\n{}", self.screen());
    }

    pub fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal takes keys");
    }

    pub fn terminate(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("the command runs");
    }

    /// Waits for the end of the command, and checks that it has left the terminal as it was.
    pub fn wait_exit(mut self) -> ExitStatus {
        let status = wait::until(wait::PATIENCE, || self.child.try_wait().expect("a child"));
        let status = status.unwrap_or_else(|| panic!("it does not end:\n{}", self.screen()));
        wait::expect("the screen of before", || self.written().contains("\x1b[?1049l"));
        wait::expect("a cursor", || {
            let written = self.written();
            written.rfind("\x1b[?25h") > written.rfind("\x1b[?25l")
        });
        let modes = tcgetattr(&self.terminal).expect("the modes");
        assert_eq!(
            (modes.local_modes, modes.input_modes, modes.output_modes),
            (self.modes_before.local_modes, self.modes_before.input_modes, self.modes_before.output_modes)
        );
        status
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Fails if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The characters that a terminal shows: it knows where the cursor goes, and when the screen is cleared.
fn shown(written: &str) -> String {
    let mut grid = vec![vec![' '; usize::from(COLUMNS)]; usize::from(ROWS)];
    let (mut row, mut column) = (0, 0);
    let mut letters = written.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\x1b' if letters.as_str().starts_with('[') => {
                letters.next();
                let sequence = letters.as_str();
                let end = sequence.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(0);
                let (parameters, rest) = sequence.split_at(end);
                letters = rest.chars();
                match letters.next() {
                    Some('H') => {
                        let (to_row, to_column) = parameters.split_once(';').unwrap_or(("1", "1"));
                        let number = |text: &str| text.parse::<usize>().unwrap_or(1).saturating_sub(1);
                        (row, column) = (number(to_row), number(to_column));
                    }
                    Some('J') => grid.iter_mut().for_each(|row| row.fill(' ')),
                    _ => {}
                }
            }
            letter if letter.is_control() => {}
            letter => {
                if let Some(cell) = grid.get_mut(row).and_then(|row| row.get_mut(column)) {
                    *cell = letter;
                }
                column += 1;
            }
        }
    }
    let lines = grid.into_iter().map(|row| row.into_iter().collect::<String>().trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn a_screen_is_what_was_written_last_at_each_place() {
    let lines = shown("lost\x1b[2J\x1b[1;1Habc\x1b[31m\x1b[2;3Hx\x1b[0m\x1b[1;2HZ\x1b[?25l");
    assert_eq!(lines.trim_end(), "aZc\n  x");
}
